//! The pages of the chart's values: each value with its default and its comment in `values.yaml`.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::head;
use super::table::{code, table};
use crate::Files;

/// The page beside the chart, which directories of charts show.
const README: &str = "charts/etcd-operator/README.md";
/// The page of the site.
const REFERENCE: &str = "docs/reference/chart.md";
const VALUES: &str = include_str!("../../../../charts/etcd-operator/values.yaml");

const INTRODUCTION: &str = "
Installs the operator, which runs [etcd](https://etcd.io) clusters on Kubernetes, backs them up and restores them. It needs Kubernetes 1.30
or newer and Helm 3.14 or newer, and neither a webhook nor cert-manager. No image is published yet: build it with `cargo xtask image`.

```
helm install etcd-operator charts/etcd-operator --namespace etcd --create-namespace \\
  --set image.repository=registry.example.com/etcd-operator
```

The CRDs belong to the release: it upgrades them, and they stay when it is uninstalled, with all clusters. The repository's `docs` describe how
to [install](../../docs/install.md), [upgrade](../../docs/how-to/upgrade-operator.md) and
[uninstall](../../docs/how-to/uninstall.md) the operator.

## Values

";

const NOTE: &str = "
An unknown value, or values that contradict each other, are refused by name. The values of the CoreOS operator's chart are
accepted as well: ";

/// The generated files.
pub(super) fn files() -> Files {
    let rows: Vec<_> = values(VALUES).iter().map(row).collect();
    let rows = table(&["value", "default", "meaning"], &rows);
    let link = |path: &str| format!("{NOTE}[which]({path}#values-of-its-chart).\n");
    let readme = [
        &*head("etcd-operator"),
        INTRODUCTION,
        &rows,
        &link("../../docs/migration.md"),
    ];
    let reference = [&*head("Chart values"), "\n", &rows, &link("../migration.md")];
    Files::from([
        (PathBuf::from(README), readme.concat()),
        (PathBuf::from(REFERENCE), reference.concat()),
    ])
}

/// A value of the chart.
#[derive(Debug, PartialEq, Eq)]
struct ChartValue {
    /// Its keys, joined by dots.
    path: String,
    /// Its default, as written; empty for a map whose keys have values of their own.
    default: String,
    comment: String,
}

/// The values of a `values.yaml` in which a comment stands above each key.
fn values(text: &str) -> Vec<ChartValue> {
    let mut values: Vec<ChartValue> = Vec::new();
    let mut parents: Vec<(usize, &str)> = Vec::new();
    let mut comment = String::new();
    for line in text.lines() {
        let bare = line.trim_start();
        let indent = line.len() - bare.len();
        if let Some(words) = bare.strip_prefix("# ") {
            let separator = if comment.is_empty() { "" } else { " " };
            let _ = write!(comment, "{separator}{words}");
        } else if bare.starts_with("- ") {
            if let Some(last) = values.last_mut() {
                let _ = write!(last.default, "{bare} ");
            }
        } else if let Some((key, default)) = bare.split_once(':') {
            parents.retain(|(depth, _)| *depth < indent);
            parents.push((indent, key));
            let keys: Vec<&str> = parents.iter().map(|(_, key)| *key).collect();
            values.push(ChartValue {
                path: keys.join("."),
                default: default.trim().to_owned(),
                comment: std::mem::take(&mut comment),
            });
        } else {
            comment.clear();
        }
    }
    values
}

fn row(value: &ChartValue) -> [String; 3] {
    [
        code(&value.path),
        code(value.default.trim()),
        value.comment.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_its_path_default_and_comment() {
        let text = "# About the file.\n\n# A map.\na:\n  # A number\n  # of two lines.\n  b: 1\n# A list.\nc:\n- { d: 2 }\n- e\n\
                    # Empty.\nf: []\n";
        let found = values(text);
        let told: Vec<_> = found
            .iter()
            .map(|value| (&*value.path, value.default.trim(), &*value.comment))
            .collect();
        assert_eq!(
            told,
            [
                ("a", "", "A map."),
                ("a.b", "1", "A number of two lines."),
                ("c", "- { d: 2 } - e", "A list."),
                ("f", "[]", "Empty."),
            ]
        );
    }

    #[test]
    fn both_pages_have_every_value() {
        let files = files();
        let paths: Vec<String> = values(VALUES).into_iter().map(|value| value.path).collect();
        assert!(paths.len() > 80, "{}", paths.len());
        for page in files.values() {
            for path in &paths {
                assert!(page.contains(&format!("| `{path}` |")), "{path}");
            }
        }
    }
}
