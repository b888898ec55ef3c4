//! Whether a spec can be built at all, tried out before anything is made of it.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_api::refusal::Refusal;
use etcd_operator_etcd::version::Version;

use super::{Frame, Latch, template::template};
use crate::desired::Desired;
use crate::plan::Fetching;

/// What stands against building this, in this version of etcd: only a template can be refused. What the frame says besides
/// has no say in it.
pub(crate) fn trial(desired: &Desired, version: &Version) -> Vec<Refusal> {
    let frame = Frame {
        namespace: "trial".to_owned(),
        cluster_uid: "trial".to_owned(),
        latch: Latch {
            incarnation: 1,
            cluster_id: None,
            voters: BTreeSet::new(),
            members: BTreeMap::new(),
            restore: None,
            restored_revision: 0,
            earlier_restores: Vec::new(),
        },
        replicas: desired.size.get(),
        formed: true,
        version: version.clone(),
        operator_image: "trial".parse().expect("a word is an image"),
        live_voters: 0,
        stored: None,
        may_move: true,
        fetching: Fetching::Nothing,
        is_held: false,
    };
    template(desired, &frame).err().unwrap_or_default()
}
