//! `KUBEBUILDER_ASSETS`: a directory some machines have with ready-made binaries for a control plane. One is used if
//! it is there and not older than what would be built; nothing else is ever taken from there.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::component::Component;
use super::progress::say;
use super::sets::ComponentSet;

/// What such a directory holds by convention, and how each is asked for its version.
const HELD: &[(Component, &[&str])] = &[
    (Component::KubeApiserver, &["--version"]),
    (Component::Kubectl, &["version", "--client"]),
    (Component::EtcdOfControlPlane, &["--version"]),
];

/// The path of a component in the directory, if it is good enough there.
pub(super) async fn find(component: Component) -> Option<PathBuf> {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let (path, arguments) = held(assets.as_deref()?, component)?;
    let output = Command::new(&path).args(arguments).output().await.ok()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let pinned = component.place().0.version().ok()?;
    if is_as_new(&said, &pinned) {
        return Some(path);
    }
    say(&format!(
        "{} is older than {pinned} or does not say what it is: not used",
        path.display()
    ));
    None
}

/// Whether nothing of `set` has to be built.
pub(super) async fn cover(set: &ComponentSet) -> bool {
    for binary in set.binaries {
        let held = HELD.iter().find(|(component, _)| {
            let (of, name) = component.place();
            of.name == set.name && name == binary.name
        });
        match held {
            Some((component, _)) if find(*component).await.is_some() => {}
            _ => return false,
        }
    }
    true
}

fn held(assets: &Path, component: Component) -> Option<(PathBuf, &'static [&'static str])> {
    let (_, arguments) = HELD.iter().find(|(held, _)| *held == component)?;
    let path = assets.join(component.place().1);
    path.is_file().then_some((path, *arguments))
}

/// Compares minors: patches of one minor are as good as each other here.
fn is_as_new(said: &str, pinned: &str) -> bool {
    let found = said.split_whitespace().find_map(minor);
    found.is_some() && found >= minor(pinned)
}

/// Reads `v1.36.3` and `3.6.16` up to the minor.
fn minor(word: &str) -> Option<(u32, u32)> {
    let mut numbers = word.trim_start_matches('v').split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assets_are_used_only_for_what_they_hold() {
        let bed = crate::bed_dir::BedDir::create().unwrap();
        for name in ["kubectl", "kubelet"] {
            bed.write(name, "").unwrap();
        }
        let found = |component| held(bed.path(), component).map(|(path, _)| path);
        assert_eq!(found(Component::Kubectl), Some(bed.path().join("kubectl")));
        assert_eq!(found(Component::KubeApiserver), None);
        assert_eq!(found(Component::Kubelet), None);
    }

    #[test]
    fn an_etcd_under_test_is_never_one_that_happens_to_be_in_the_assets() {
        let bed = crate::bed_dir::BedDir::create().unwrap();
        bed.write("etcd", "").unwrap();
        assert!(held(bed.path(), Component::EtcdOfControlPlane).is_some());
        for version in crate::components::EtcdVersion::ALL {
            assert_eq!(held(bed.path(), Component::Etcd(version)), None);
        }
    }

    #[test]
    fn an_older_minor_is_not_used_and_a_newer_one_is() {
        assert!(is_as_new("Kubernetes v1.36.0\n", "v1.36.3"));
        assert!(is_as_new(
            "Client Version: v1.37.1\nKustomize Version: v5.0.1\n",
            "v1.36.3"
        ));
        assert!(!is_as_new("Kubernetes v1.30.9\n", "v1.36.3"));
        assert!(!is_as_new("Kubernetes v1.4.9\n", "v1.36.3"));
        assert!(is_as_new("etcd Version: 3.6.4\nGit SHA: abc\n", "v3.6.16"));
        assert!(!is_as_new("etcd Version: 3.5.21\n", "v3.6.16"));
        assert!(!is_as_new("", "v1.36.3"));
    }
}
