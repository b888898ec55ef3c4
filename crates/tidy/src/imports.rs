//! Which module imports which within a crate, read from its sources: deciding modules import one another in no circle, and
//! flows of the cluster controller do not call one another.
//!
//! A module is a file. A name counts as imported from the file that defines it, also if another one re-exports it.

use std::collections::{BTreeMap, BTreeSet};

use crate::Finding;
use crate::code::{Token, first_test_line, strip_comments_and_literals, tokens};
use crate::tree::Tree;

/// The flows of the cluster controller: each brings a cluster on in one way.
pub const FLOWS: [&str; 12] = [
    "crates/cluster-core/src/plan/adopt.rs",
    "crates/cluster-core/src/plan/alarms.rs",
    "crates/cluster-core/src/plan/await_restore.rs",
    "crates/cluster-core/src/plan/bootstrap.rs",
    "crates/cluster-core/src/plan/join.rs",
    "crates/cluster-core/src/plan/remove.rs",
    "crates/cluster-core/src/plan/replace.rs",
    "crates/cluster-core/src/plan/restore.rs",
    "crates/cluster-core/src/plan/rollout.rs",
    "crates/cluster-core/src/plan/scale.rs",
    "crates/cluster-core/src/plan/start_over.rs",
    "crates/cluster-core/src/plan/unknown_membership.rs",
];

/// The modules that pick among flows: before a cluster has formed, and after that.
pub const PICKERS: [&str; 2] = [
    "crates/cluster-core/src/plan.rs",
    "crates/cluster-core/src/plan/formed.rs",
];

/// The imports that are part of a circle and stay.
pub const EXCEPTIONS: [Exception; 6] = [
    Exception {
        from: "crates/cluster-core/src/blocker/member_problem.rs",
        to: "crates/cluster-core/src/blocker.rs",
        reason: "a voter is unhealthy for another blocker: the two types hold one another",
    },
    Exception {
        from: "crates/backup/src/plan/progress.rs",
        to: "crates/backup/src/plan.rs",
        reason: "the progress is told of the plan, and is part of it",
    },
    Exception {
        from: "crates/backup/src/plan/start.rs",
        to: "crates/backup/src/plan.rs",
        reason: "what starts is written into the plan, which holds the run that was missed",
    },
    Exception {
        from: "crates/backup/src/plan/start.rs",
        to: "crates/backup/src/plan/progress.rs",
        reason: "a run that is blocked is told as progress, which tells when the next one starts",
    },
    Exception {
        from: "crates/restore/src/plan/recheck.rs",
        to: "crates/restore/src/plan/verify.rs",
        reason: "a backup that has changed is verified anew, which ends in a recheck",
    },
    Exception {
        from: "crates/restore/src/plan/safety_backup.rs",
        to: "crates/restore/src/plan/verify.rs",
        reason: "a backup that is gone after the safety backup is verified anew, which comes before that",
    },
];

/// The imports of one crate: for each file the files that it imports from, each with the first line that does.
pub type Imports = BTreeMap<String, BTreeMap<String, usize>>;

/// An import that is part of a circle and stays.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// The file that imports.
    pub from: &'static str,
    /// The file that it imports from.
    pub to: &'static str,
    /// Why it does not pay to break the circle.
    pub reason: &'static str,
}

/// A path as in a `use` declaration, without its braces.
type Path = Vec<String>;

/// A file of the crate as far as paths lead through it.
struct Module {
    /// Its path from the root of the crate.
    path: Path,
    /// The modules that it declares.
    children: BTreeSet<String>,
    /// The names that it imports, each with what it stands for.
    names: BTreeMap<String, Path>,
    /// Every path in its code, with its line.
    paths: Vec<(Path, usize)>,
}

/// Reads the imports between the files below `source`, such as `crates/cluster-core/src/`. Unit tests do not count.
pub fn read(tree: &Tree, source: &str) -> Imports {
    let files = tree
        .iter()
        .filter(|(path, _)| path.starts_with(source) && is_product(path));
    let modules: BTreeMap<&str, Module> = files
        .map(|(file, text)| (file.as_str(), Module::read(&module_path(file, source), text)))
        .collect();
    let by_path: BTreeMap<&Path, (&str, &Module)> = modules
        .iter()
        .map(|(file, module)| (&module.path, (*file, module)))
        .collect();
    let mut imports = Imports::new();
    for (file, module) in &modules {
        let imported = imports.entry((*file).to_owned()).or_default();
        for (path, line) in &module.paths {
            let Some(target) = resolve(path, &by_path).filter(|target| target != file) else {
                continue;
            };
            imported.entry(target.to_owned()).or_insert(*line);
        }
    }
    imports
}

fn is_product(path: &str) -> bool {
    path.rsplit('.').next() == Some("rs") && !path.ends_with("/tests.rs") && !path.contains("/tests/")
}

fn module_path(file: &str, source: &str) -> Path {
    let inner = file.trim_start_matches(source).trim_end_matches(".rs");
    let mut path: Path = inner.split('/').map(str::to_owned).collect();
    if path
        .last()
        .is_some_and(|name| ["lib", "main", "mod"].contains(&name.as_str()))
    {
        path.pop();
    }
    path
}

/// The file that defines what an absolute path names.
fn resolve<'a>(path: &[String], modules: &BTreeMap<&Path, (&'a str, &'a Module)>) -> Option<&'a str> {
    // Re-exports of re-exports are few; a bound keeps two that name each other from going on for ever.
    let mut path = path.to_vec();
    for _ in 0..8 {
        let depth = (0..=path.len())
            .rev()
            .find(|depth| modules.contains_key(&path[..*depth].to_vec()))?;
        let (file, module) = modules[&path[..depth].to_vec()];
        let reexported = path.get(depth).and_then(|name| module.names.get(name));
        let Some(target) = reexported else {
            return Some(file);
        };
        path = [target.as_slice(), &path[depth + 1..]].concat();
    }
    None
}

impl Module {
    fn read(path: &Path, text: &str) -> Self {
        let bare = strip_comments_and_literals(text);
        let end = first_test_line(text).unwrap_or(usize::MAX);
        let tokens: Vec<_> = tokens(&bare)
            .into_iter()
            .filter(|token| token.line < end)
            .collect();
        let children = tokens
            .windows(3)
            .filter(|window| window[0].text == "mod" && window[2].text == ";");
        let mut module = Self {
            path: path.clone(),
            children: children.map(|window| window[1].text.to_owned()).collect(),
            names: BTreeMap::new(),
            paths: Vec::new(),
        };
        let mut position = 0;
        while position < tokens.len() {
            let follows_path = position > 0 && tokens[position - 1].text == "::";
            let leads_on = tokens.get(position + 1).is_some_and(|next| next.text == "::");
            if tokens[position].text == "use" {
                position = module.read_use(&tokens, position + 1);
            } else if leads_on && !follows_path {
                position = module.read_path(&tokens, position);
            } else {
                position += 1;
            }
        }
        module
    }

    /// Reads a path in an expression or a type. Returns the position after it.
    fn read_path(&mut self, tokens: &[Token<'_>], from: usize) -> usize {
        let mut segments = vec![tokens[from].text.to_owned()];
        let mut position = from + 1;
        while let [sign, name, ..] = &tokens[position..]
            && sign.text == "::"
            && is_name(name.text)
        {
            segments.push(name.text.to_owned());
            position += 2;
        }
        if let Some(path) = self.absolute(&segments) {
            self.paths.push((path, tokens[from].line));
        }
        position
    }

    /// Reads a `use` declaration up to its semicolon. Returns the position after it.
    fn read_use(&mut self, tokens: &[Token<'_>], from: usize) -> usize {
        // The path before each brace that is open.
        let mut open: Vec<Path> = Vec::new();
        let mut current = Path::new();
        let mut name = None;
        // Whether the path goes on after the last comma or brace.
        let mut has_end = false;
        let mut position = from;
        while let Some(token) = tokens.get(position) {
            match token.text {
                "{" => {
                    open.push(current.clone());
                    has_end = false;
                }
                "," | "}" | ";" => {
                    if has_end {
                        self.record_use(&current, name.take(), token.line);
                    }
                    has_end = false;
                    if token.text == "}" {
                        open.pop();
                    }
                    current = open.last().cloned().unwrap_or_default();
                }
                "as" => {
                    position += 1;
                    name = tokens.get(position).map(|token| token.text.to_owned());
                }
                "::" => {}
                text => {
                    current.push(text.to_owned());
                    has_end = true;
                }
            }
            position += 1;
            if token.text == ";" {
                break;
            }
        }
        position
    }

    fn record_use(&mut self, segments: &[String], name: Option<String>, line: usize) {
        let Some(path) = self.absolute(segments) else {
            return;
        };
        if let Some(last) = path.last() {
            self.names
                .insert(name.unwrap_or_else(|| last.clone()), path.clone());
        }
        self.paths.push((path, line));
    }

    /// The path from the root of the crate; none if it leads into another crate.
    fn absolute(&self, segments: &[String]) -> Option<Path> {
        let (first, rest) = segments.split_first()?;
        let (mut path, mut rest) = match first.as_str() {
            "crate" => (Path::new(), rest),
            "self" => (self.path.clone(), rest),
            "super" => (self.path.clone(), segments),
            child if self.children.contains(child) => (self.path.clone(), segments),
            _ => return None,
        };
        while rest.first().is_some_and(|segment| segment == "super") {
            path.pop();
            rest = &rest[1..];
        }
        path.extend(
            rest.iter()
                .filter(|segment| !["self", "*"].contains(&segment.as_str()))
                .cloned(),
        );
        Some(path)
    }
}

fn is_name(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// Finds circles among the `files`, each told as one way around it. `exceptions` are imports that stay; one that is no
/// longer part of a circle is a finding, too.
pub fn check_circles(imports: &Imports, files: &BTreeSet<&str>, exceptions: &[Exception]) -> Vec<Finding> {
    let mut graph: Imports = imports
        .iter()
        .filter(|(from, _)| files.contains(from.as_str()))
        .map(|(from, to)| {
            let to = to.iter().filter(|(to, _)| files.contains(to.as_str()));
            (from.clone(), to.map(|(to, line)| (to.clone(), *line)).collect())
        })
        .collect();
    let mut found = Vec::new();
    for exception in exceptions {
        let is_import = graph
            .get_mut(exception.from)
            .is_some_and(|to| to.remove(exception.to).is_some());
        if !is_import || shortest_way(&graph, exception.to, exception.from).is_none() {
            let message = format!(
                "the exception for its import of {} is part of no circle: remove it",
                exception.to
            );
            found.push(Finding::for_file(exception.from, message));
        }
    }
    let mut told = BTreeSet::new();
    for (from, imported) in &graph {
        for (to, line) in imported {
            if told.contains(&(from.as_str(), to.as_str())) {
                continue;
            }
            let Some(back) = shortest_way(&graph, to, from) else {
                continue;
            };
            // One circle for each import: the others of it are told with it.
            told.insert((from.as_str(), to.as_str()));
            told.extend(back.windows(2).map(|pair| (pair[0], pair[1])));
            let message = format!("imports in a circle: {}", back.join(" -> "));
            found.push(Finding::on_line(from, *line, message));
        }
    }
    found
}

/// The shortest way along imports from one file to another, both included.
fn shortest_way<'a>(graph: &'a Imports, from: &'a str, to: &'a str) -> Option<Vec<&'a str>> {
    let mut ways = std::collections::VecDeque::from([vec![from]]);
    let mut seen = BTreeSet::from([from]);
    while let Some(way) = ways.pop_front() {
        let last = way[way.len() - 1];
        if last == to {
            return Some(way);
        }
        for next in graph.get(last).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(next) {
                ways.push_back([way.as_slice(), &[next]].concat());
            }
        }
    }
    None
}

/// Finds imports of flows by other files than the `pickers`. Modules below a flow are not the flow: those that others may ask
/// are public, and the compiler keeps the others to it.
pub fn check_flows(imports: &Imports, flows: &[&str], pickers: &[&str]) -> Vec<Finding> {
    let absent = flows
        .iter()
        .chain(pickers)
        .filter(|file| !imports.contains_key(**file));
    let mut found: Vec<_> = absent
        .map(|file| Finding::for_file(file, "this file does not exist: correct the check"))
        .collect();
    for (from, imported) in imports {
        for (to, line) in imported {
            if flows.contains(&to.as_str()) && !pickers.contains(&from.as_str()) {
                let message = format!("imports the flow {to}: only {} may", pickers.join(" and "));
                found.push(Finding::on_line(from, *line, message));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(files: &[(&str, &str)]) -> Imports {
        let files = files
            .iter()
            .map(|(path, text)| (format!("src/{path}"), (*text).to_owned()));
        read(&files.collect(), "src/")
    }

    /// The imports between files, without lines.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let imports = imports(files);
        let edges = imports
            .iter()
            .flat_map(|(from, to)| to.keys().map(move |to| format!("{from} {to}")));
        edges.map(|edge| edge.replace("src/", "")).collect()
    }

    fn circles(files: &[(&str, &str)], exceptions: &[Exception]) -> Vec<String> {
        let imports = imports(files);
        let files = imports.keys().map(String::as_str).collect();
        let found = check_circles(&imports, &files, exceptions);
        found.iter().map(ToString::to_string).collect()
    }

    const CIRCLE: [(&str, &str); 3] = [
        ("a.rs", "use crate::b::B;\n"),
        ("b.rs", "use crate::c::C;\n"),
        ("c.rs", "fn c() -> super::a::A {}\n"),
    ];

    #[test]
    fn imports_are_found_in_declarations_and_in_expressions() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\nmod c;\n"),
            (
                "a.rs",
                "mod d;\nuse super::b::{self, x::{Y, Z}, T as U,};\nfn f() { d::g(); }\n",
            ),
            ("a/d.rs", "fn g() -> super::super::c::C { std::fs::read() }\n"),
            ("b.rs", "use std::c::C;\n// use crate::a::A;\n"),
            ("c.rs", "#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n"),
        ];
        assert_eq!(edges(&files), ["a.rs a/d.rs", "a.rs b.rs", "a/d.rs c.rs"]);
    }

    #[test]
    fn a_name_counts_as_imported_from_the_file_that_defines_it() {
        let files = [
            ("a.rs", "mod b;\npub use b::{B, C as D};\npub struct A;\n"),
            ("a/b.rs", "pub struct B;\n"),
            ("c.rs", "use crate::a::{B, D};\n"),
            ("d.rs", "use crate::a::A;\n"),
        ];
        assert_eq!(edges(&files), ["a.rs a/b.rs", "c.rs a/b.rs", "d.rs a.rs"]);
    }

    #[test]
    fn a_circle_is_told_as_the_way_around_it() {
        assert_eq!(
            circles(&CIRCLE, &[]),
            ["src/a.rs:1: imports in a circle: src/b.rs -> src/c.rs -> src/a.rs"]
        );
        let of_parent = [
            ("a.rs", "mod b;\nuse b::B;\npub struct A;\n"),
            ("a/b.rs", "use super::A;\n"),
        ];
        assert_eq!(circles(&of_parent, &[]).len(), 1);
        assert_eq!(circles(&CIRCLE[..2], &[]), [""; 0]);
    }

    #[test]
    fn an_exception_excuses_one_import_and_must_be_needed() {
        let exception = |from, to| Exception {
            from,
            to,
            reason: "it is one type",
        };
        let needed = exception("src/c.rs", "src/a.rs");
        assert_eq!(circles(&CIRCLE, &[needed]), [""; 0]);
        for stale in [
            exception("src/a.rs", "src/c.rs"),
            exception("src/x.rs", "src/a.rs"),
        ] {
            assert_eq!(circles(&CIRCLE, &[needed, stale]).len(), 1);
        }
        assert_eq!(
            circles(&CIRCLE[..2], &[exception("src/a.rs", "src/b.rs")]).len(),
            1
        );
    }

    #[test]
    fn only_pickers_import_flows() {
        let imports = imports(&[
            ("pick.rs", "use crate::{join, scale};\n"),
            ("join.rs", "mod stage;\n"),
            ("join/stage.rs", ""),
            ("scale.rs", "fn f() { crate::join::advance(); }\n"),
            ("layout.rs", "use crate::join::stage::Stage;\n"),
        ]);
        let flows = ["src/join.rs", "src/scale.rs"];
        let found = check_flows(&imports, &flows, &["src/pick.rs"]);
        assert_eq!(
            found,
            [Finding::on_line(
                "src/scale.rs",
                1,
                "imports the flow src/join.rs: only src/pick.rs may"
            )]
        );
        assert_eq!(check_flows(&imports, &["src/gone.rs"], &[]).len(), 1);
    }
}
