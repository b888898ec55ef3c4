//! The picture of the README: user, API, operator, members and store, drawn as SVG from tables of boxes and arrows.
//!
//! It brings its own background, so that it can be read on light and dark pages alike.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::Files;

/// Where the README looks for it.
pub const PATH: &str = "docs/images/overview.svg";

const WIDTH: u32 = 960;
const HEIGHT: u32 = 430;

/// The colors of a box: its border and what fills it.
#[derive(Clone, Copy)]
enum Color {
    Gray,
    Blue,
    Green,
    Orange,
    White,
}

impl Color {
    fn border(self) -> &'static str {
        match self {
            Self::Gray | Self::White => "#57606a",
            Self::Blue => "#0969da",
            Self::Green => "#1a7f37",
            Self::Orange => "#bc4c00",
        }
    }

    fn fill(self) -> &'static str {
        match self {
            Self::Gray => "#f6f8fa",
            Self::Blue => "#ddf4ff",
            Self::Green => "#dafbe1",
            Self::Orange => "#fff1e5",
            Self::White => "#ffffff",
        }
    }
}

/// A rectangle with lines of text from its top; the first line is its title.
struct Node {
    left: u32,
    top: u32,
    width: u32,
    height: u32,
    color: Color,
    lines: &'static [&'static str],
}

/// A line with a head at its end, and the text beside it.
struct Arrow {
    from: (u32, u32),
    to: (u32, u32),
    /// Whether it has a head at its beginning, too.
    is_both_ways: bool,
    text_at: (u32, u32),
    lines: &'static [&'static str],
}

const fn node(
    (left, top, width, height): (u32, u32, u32, u32),
    color: Color,
    lines: &'static [&'static str],
) -> Node {
    Node {
        left,
        top,
        width,
        height,
        color,
        lines,
    }
}

const fn arrow(
    from: (u32, u32),
    to: (u32, u32),
    text_at: (u32, u32),
    lines: &'static [&'static str],
) -> Arrow {
    Arrow {
        from,
        to,
        is_both_ways: false,
        text_at,
        lines,
    }
}

const NODES: [Node; 11] = [
    node((20, 150, 132, 64), Color::Gray, &["User", "kubectl, GitOps"]),
    node((210, 50, 170, 264), Color::Gray, &["Kubernetes API"]),
    node(
        (226, 86, 138, 62),
        Color::White,
        &["EtcdCluster", "size, storage"],
    ),
    node(
        (226, 162, 138, 62),
        Color::White,
        &["EtcdBackup", "schedule, store"],
    ),
    node(
        (226, 238, 138, 62),
        Color::White,
        &["EtcdRestore", "backup, time"],
    ),
    node(
        (450, 86, 170, 104),
        Color::Blue,
        &[
            "Operator",
            "one disruptive step",
            "at a time, recorded",
            "before it is taken",
        ],
    ),
    node(
        (450, 288, 170, 84),
        Color::Orange,
        &["Backup Job", "stream, check,", "compress, encrypt"],
    ),
    node((730, 50, 210, 186), Color::Green, &["etcd cluster"]),
    node((746, 84, 178, 40), Color::White, &["orders-0: guard, etcd"]),
    node((746, 132, 178, 40), Color::White, &["orders-1: guard, etcd"]),
    node((746, 180, 178, 40), Color::White, &["orders-2: guard, etcd"]),
];

const STORE: Node = node(
    (730, 316, 210, 84),
    Color::Orange,
    &["Object store or volume", "snapshot,", "manifest written last"],
);

const ARROWS: [Arrow; 7] = [
    arrow((152, 182), (206, 182), (179, 172), &["apply"]),
    Arrow {
        from: (384, 138),
        to: (446, 138),
        is_both_ways: true,
        text_at: (415, 112),
        lines: &["watch,", "status"],
    },
    arrow((620, 112), (726, 112), (673, 102), &["start permits"]),
    arrow((620, 162), (726, 162), (673, 152), &["membership"]),
    arrow((535, 190), (535, 284), (570, 242), &["create"]),
    arrow((770, 236), (624, 306), (664, 262), &["snapshot"]),
    arrow((620, 346), (726, 346), (673, 336), &["upload, verify"]),
];

const RESTORE: Arrow = arrow((850, 316), (850, 240), (884, 282), &["restore"]);

/// The generated file.
pub fn files() -> Files {
    Files::from([(PathBuf::from(PATH), picture())])
}

fn picture() -> String {
    let mut svg = String::new();
    let nodes: String = NODES.iter().chain([&STORE]).map(Node::draw).collect();
    let arrows: String = ARROWS.iter().chain([&RESTORE]).map(Arrow::draw).collect();
    let _ = write!(
        svg,
        "<!-- Made by `cargo xtask gen`; changes by hand are lost. -->\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         role=\"img\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"14\" text-anchor=\"middle\" fill=\"#1f2328\">\n\
         <title>User, Kubernetes API, operator, members and store</title>\n\
         <defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
         orient=\"auto-start-reverse\"><path d=\"M0 0 L8 4 L0 8 Z\" fill=\"#57606a\"/></marker></defs>\n\
         <rect x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"12\" fill=\"#ffffff\" stroke=\"#d0d7de\"/>\n\
         {nodes}{arrows}</svg>\n",
        WIDTH - 1,
        HEIGHT - 1,
    );
    svg
}

impl Node {
    fn draw(&self) -> String {
        let Self {
            left,
            top,
            width,
            height,
            color,
            lines,
        } = self;
        let mut svg = format!(
            "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{}\" stroke=\"{}\"/>\n",
            color.fill(),
            color.border()
        );
        let middle = left + width / 2;
        for (index, line) in (0..).zip(*lines) {
            let weight = if index == 0 { " font-weight=\"bold\"" } else { "" };
            let baseline = top + 25 + 20 * index;
            let _ = writeln!(svg, "<text x=\"{middle}\" y=\"{baseline}\"{weight}>{line}</text>");
        }
        svg
    }
}

impl Arrow {
    fn draw(&self) -> String {
        let Self {
            from,
            to,
            is_both_ways,
            text_at,
            lines,
        } = self;
        let start = if *is_both_ways {
            " marker-start=\"url(#head)\""
        } else {
            ""
        };
        let mut svg = format!(
            "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"#57606a\" stroke-width=\"1.5\"{start} \
             marker-end=\"url(#head)\"/>\n",
            from.0, from.1, to.0, to.1
        );
        for (index, line) in (0..).zip(*lines) {
            let (x, y) = (text_at.0, text_at.1 + 16 * index);
            let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" font-size=\"12\">{line}</text>");
        }
        svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_box_lies_inside_the_picture() {
        for node in NODES.iter().chain([&STORE]) {
            assert!(
                node.left + node.width < WIDTH && node.top + node.height < HEIGHT,
                "{:?}",
                node.lines
            );
        }
    }

    #[test]
    fn every_text_of_a_box_is_shorter_than_the_box() {
        for node in NODES.iter().chain([&STORE]) {
            for line in node.lines {
                let needed = u32::try_from(line.len()).unwrap() * 8;
                assert!(needed <= node.width, "{line}");
            }
        }
    }
}
