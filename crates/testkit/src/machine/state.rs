//! What the machines know: nodes, disks behind volumes, and the pods that kubelets run. A kubelet knows its pods by
//! itself and not from the API server, which it may have lost.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_api::contract::Arrival;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::api::Objects;
use super::fetch::{Fetch, FetchTrouble};
use super::guard::Waiting;
use super::jobs::Jobs;
use super::sets::Revisions;
use super::status::Shown;
use crate::chance::Chance;
use crate::etcd::{DiskId, ProcessId, Snapshot};
use crate::fake::Stored;

/// How long a kubelet tells of a container how it ended before it tells that it starts it again later.
const BACKS_OFF: Duration = Duration::from_secs(1);

/// Everything the machines know.
pub(crate) struct State {
    pub(crate) chance: Chance,
    pub(crate) nodes: BTreeMap<String, Node>,
    /// Storage classes that have a provisioner; the empty one is the default.
    pub(crate) classes: BTreeSet<String>,
    /// The disk behind each volume, by the name of the volume.
    pub(crate) disks: BTreeMap<String, DiskId>,
    /// Volumes that exist on one node only.
    pub(crate) homes: BTreeMap<String, String>,
    /// What kubelets run, by the UID of the pod.
    pub(crate) pods: BTreeMap<String, Pod>,
    /// Pods, by namespace and name, that fit on no node.
    pub(crate) too_large: BTreeSet<(String, String)>,
    /// What lies in the store of backups, by the hash of the object.
    pub(crate) backups: BTreeMap<String, Snapshot>,
    /// Members whose downloads fail.
    pub(crate) fetch_troubles: BTreeMap<String, FetchTrouble>,
    /// Members whose next start ends after so many steps.
    pub(crate) short_lives: BTreeMap<String, usize>,
    /// Jobs that try images.
    pub(crate) jobs: Jobs,
    /// Names of this namespace resolve for nobody.
    pub(crate) is_nameless: bool,
    /// Disks by which nothing tells them from a copy in their place.
    pub(crate) is_weak: bool,
    /// The second half of the next address.
    pub(crate) addresses: u16,
    /// The version of the API server at which what nobody owns was last collected.
    pub(crate) collected: u64,
    /// The objects about which all was done that is decided by nothing else; none if there may be more to do.
    pub(crate) decided: Option<Objects>,
    /// The names of templates, by the UID of their set.
    pub(crate) revisions: Revisions,
}

/// A machine with a kubelet.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// It has power.
    pub(crate) is_up: bool,
    /// Its kubelet reaches the API server.
    pub(crate) is_connected: bool,
    /// Since when its kubelet was not heard of.
    pub(crate) silent: Option<Instant>,
    /// What its clock since boot said when everything began.
    pub(crate) boot: Duration,
    /// How late files of the downward API are.
    pub(crate) lateness: (Duration, Duration),
}

/// A pod as its kubelet knows it.
#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) object: Arc<Stored>,
    pub(crate) node: String,
    pub(crate) address: String,
    /// Its probe asks etcd's own page, and one look is enough for it.
    pub(crate) looks_once: bool,
    /// Where its data lies, once that is mounted.
    pub(crate) disk: Option<DiskId>,
    /// The disk ends with the pod.
    pub(crate) is_own_disk: bool,
    /// What its volume held as it came, once that is looked at.
    pub(crate) arrival: OnceCell<Option<Arrival>>,
    pub(crate) container: Container,
    /// What brings the object of a restore before anything else, if something does.
    pub(crate) fetch: Option<Fetch>,
    pub(crate) restarts: u32,
    /// How often in a row it ended soon after its start.
    pub(crate) failures: u32,
    pub(crate) last: Option<Ended>,
    /// How it had ended before that.
    pub(crate) before: Option<Ended>,
    /// The file with the permit.
    pub(crate) permit: watch::Sender<String>,
    pub(crate) permit_due: Option<(Instant, String)>,
    pub(crate) is_ready: bool,
    /// When the probe will have said the other thing often enough.
    pub(crate) probe: Option<Instant>,
    /// When its kubelet hears that it is to end.
    pub(crate) hears_at: Option<Instant>,
    /// Until when it may end by itself.
    pub(crate) ending: Option<Instant>,
    /// What of it is in its stored status already.
    pub(crate) told: Option<Shown>,
}

/// The container of a member.
#[derive(Debug)]
pub(crate) enum Container {
    /// Images, volumes and the program are brought.
    Creating(Instant),
    /// The member waits for a permit.
    Waiting {
        since: Instant,
        waiting: Arc<Waiting>,
        task: AbortHandle,
    },
    /// etcd runs.
    Running { since: Instant, process: ProcessId },
    /// It ended, and starts again then.
    Ended(Instant),
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) why: String,
    pub(crate) at: Instant,
}

impl Pod {
    /// It was told to end, and has.
    pub(crate) fn is_over(&self) -> bool {
        self.ending.is_some() && matches!(self.container, Container::Ended(_))
    }

    /// From when on its kubelet says that a container that has ended again and again is started later, and no longer how
    /// it ended.
    pub(crate) fn backs_off_at(&self) -> Option<Instant> {
        let waits =
            matches!(self.container, Container::Ended(_)) && self.failures > 1 && self.ending.is_none();
        let last = self.last.as_ref().filter(|_| waits)?;
        Some(last.at + BACKS_OFF)
    }

    /// Whether its kubelet says so now.
    pub(crate) fn backs_off(&self) -> bool {
        self.backs_off_at().is_some_and(|at| Instant::now() >= at)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if let Self::Waiting { task, .. } = self {
            task.abort();
        }
    }
}

impl State {
    /// An address nobody else has had.
    pub(crate) fn address(&mut self) -> String {
        self.addresses += 1;
        let [high, low] = self.addresses.to_be_bytes();
        format!("10.1.{high}.{low}")
    }

    /// The pod with this address.
    pub(crate) fn pod_at(&self, address: &str) -> Option<&Pod> {
        self.pods.values().find(|pod| pod.address == address)
    }

    /// Whether two pods use one disk at this moment.
    pub(crate) fn is_mounted(&self, disk: DiskId, but: &str) -> bool {
        self.pods.iter().any(|(uid, pod)| {
            uid != but && pod.disk == Some(disk) && !matches!(pod.container, Container::Ended(_))
        })
    }
}
