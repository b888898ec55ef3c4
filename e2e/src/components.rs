//! The binaries the bed is made of. Code asks by name, `find(Component::Kubelet)`, and gets a path; what is not in
//! the cache is built on the way.
//!
//! They come from Go modules pinned by a `go.mod` and `go.sum` under `e2e/tools` (one etcd from Debian's packages, one
//! object store from npm) and are kept in a cache outside the clone. Nothing is ever taken from a registry of images.

mod assets;
mod build;
pub(crate) mod cache;
mod component;
mod debian;
mod follow;
mod go;
mod go_build;
mod npm;
mod progress;
mod sets;
mod table;

use std::path::PathBuf;

use anyhow::{Result, bail};

pub use component::{Component, EtcdVersion};
pub use sets::{Binary, ComponentSet, GoModule, Linkage, Source, Stamp, Stamped};

/// Everything the bed can build, in the order of need.
pub const SETS: &[&ComponentSet] = &[
    EtcdVersion::OF_CONTROL_PLANE.set(),
    &table::KUBERNETES,
    &table::RUNC,
    &table::CONTAINERD,
    &table::CNI,
    &table::PROBE,
    &table::KUBERNETES_NODE,
    &table::COREDNS,
    &table::HELM,
    &table::HELM_3,
    &table::VERSITYGW,
    &table::WORKLOAD,
    EtcdVersion::V3_7_3.set(),
    EtcdVersion::V3_6_15.set(),
    EtcdVersion::V3_5_35.set(),
    EtcdVersion::V3_5_21.set(),
    EtcdVersion::V3_4_23.set(),
    EtcdVersion::V3_3_27.set(),
    EtcdVersion::V3_2_25.set(),
    &table::ACTIONLINT,
    &table::FAKE_GCS,
    &table::AZURITE,
    &table::OSS_SIGNER,
    &table::BILL_SCHEMA,
];

/// So many of the last are built only when they are asked for.
const ON_DEMAND: usize = 4;

/// What is built beforehand, so that nothing that is timed waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Group {
    /// An API server with its etcd.
    ControlPlane,
    /// That, and all that nodes run.
    Nodes,
    /// Everything a run of the gate's scenarios uses.
    Gate,
    /// Everything.
    All,
}

impl Group {
    /// The sets of the group, in the order of need.
    pub fn sets(self) -> &'static [&'static ComponentSet] {
        let count = match self {
            Self::ControlPlane => 2,
            Self::Nodes => 9,
            Self::Gate => SETS.len() - ON_DEMAND,
            Self::All => SETS.len(),
        };
        &SETS[..count]
    }
}

/// The path of a binary: from `KUBEBUILDER_ASSETS` where that holds it, else from the cache, built first if it has
/// to be. What belongs to it (containerd's shim, the other network plugins) is beside it.
pub async fn find(component: Component) -> Result<PathBuf> {
    if let Some(path) = assets::find(component).await {
        return Ok(path);
    }
    let (set, binary) = component.place();
    if !set.binaries.iter().any(|row| row.name == binary) {
        bail!("{} has no {binary}", set.name);
    }
    Ok(build::ensure_one(set).await?.join(binary))
}

/// Builds whatever of these is needed and not in the cache yet; gives their directories there.
pub async fn prepare(sets: &[&'static ComponentSet]) -> Result<Vec<PathBuf>> {
    let mut needed = Vec::new();
    for set in sets {
        if !assets::cover(set).await {
            needed.push(*set);
        }
    }
    build::ensure(&needed).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_etcd_and_every_set_is_in_the_order_of_need_once() {
        for set in &table::ETCD {
            assert_eq!(SETS.iter().filter(|row| row.name == set.name).count(), 1);
        }
        assert_eq!(Group::ControlPlane.sets().len(), 2);
        assert_eq!(Group::Nodes.sets().last().map(|set| set.name), Some("helm"));
        for on_demand in ["fake-gcs-server", "azurite", "oss-signer", "bill-schema"] {
            assert!(!Group::Gate.sets().iter().any(|set| set.name == on_demand));
        }
    }
}
