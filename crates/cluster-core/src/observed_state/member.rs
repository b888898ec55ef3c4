//! What there is of one member: its pod, its volume, what waits in the pod and what etcd says.

use core::net::IpAddr;

use etcd_operator_api::contract::{Permit, Report};
use etcd_operator_etcd_types::id::{MemberId, RaftIndex};
use etcd_operator_etcd_types::status::Status;
use jiff::Timestamp;

use super::{CallFailure, PermitDelivery, StartDelay, Unschedulable};

/// What was observed at one ordinal.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedMember {
    /// The pod.
    pub pod: Option<Pod>,
    /// The volume claim.
    pub claim: Option<Claim>,
    /// What the process that waits in the pod says, if one does.
    pub report: QueryResult<Report>,
    /// What etcd says of itself, asked at this very place.
    pub status: QueryResult<Status>,
}

impl ObservedMember {
    /// Nothing.
    pub const ABSENT: Self = Self {
        pod: None,
        claim: None,
        report: QueryResult::NotQueried,
        status: QueryResult::NotQueried,
    };

    /// The report, if a guard waits in the pod.
    pub fn report(&self) -> Option<&Report> {
        self.report.answer()
    }

    /// What etcd says, if it runs and answers.
    pub fn status(&self) -> Option<&Status> {
        self.status.answer()
    }
}

/// The result of a query to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryResult<T> {
    /// There was nobody to ask, or no need.
    NotQueried,
    /// The answer.
    Answer(T),
    /// Somebody else answered: for a report, etcd itself runs there.
    OtherResponder,
    /// The call failed.
    NoAnswer(CallFailure),
}

impl<T> QueryResult<T> {
    /// The answer, if there is one.
    pub fn answer(&self) -> Option<&T> {
        match self {
            Self::Answer(answer) => Some(answer),
            _ => None,
        }
    }

    /// The failed call, if one was made and failed. An answer of another process is no failure.
    pub fn failure(&self) -> Option<&CallFailure> {
        match self {
            Self::NoAnswer(failure) => Some(failure),
            _ => None,
        }
    }
}

/// What plans need of a member's pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// Its UID.
    pub uid: String,
    /// The version of the object that was seen.
    pub resource_version: String,
    /// Where it runs.
    pub node: Option<String>,
    /// Where it is reached.
    pub ip: Option<IpAddr>,
    /// Whether Kubernetes sends it clients.
    pub ready: bool,
    /// Since when it is ready.
    pub ready_since: Option<Timestamp>,
    /// Since when it is not ready, if it is not.
    pub unready_since: Option<Timestamp>,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Since when it is being deleted.
    pub deleting: Option<Timestamp>,
    /// The incarnation its template had.
    pub incarnation: i64,
    /// What the user asked for when its template was made.
    pub spec_hash: Option<String>,
    /// After how many entries of its log etcd takes a snapshot of it in this pod, where its flags say so.
    pub snapshot_count: Option<u64>,
    /// Why the scheduler finds no node for it.
    pub unschedulable: Option<Unschedulable>,
    /// Since when no node takes it.
    pub unscheduled_since: Option<Timestamp>,
    /// The image of etcd.
    pub image: Option<String>,
    /// What its etcd container does.
    pub container: Container,
    /// Whether that ended several times, and the kubelet waits before it starts it again.
    pub is_crash_looping: bool,
    /// How that ended the last time, if it ever did.
    pub end: Option<End>,
    /// Since when its node does not answer, or the one that its volume is on is gone.
    pub node_lost_since: Option<Timestamp>,
    /// The permit that lies with it.
    pub permit: Option<Permit>,
    /// When it was laid there, where that is known.
    pub permit_delivery: Option<PermitDelivery>,
    /// What brings the object of a restore onto its volume.
    pub fetch: Option<Fetch>,
    /// How far whose log went on its volume as it came, if that was told.
    pub volume_position: Option<(MemberId, RaftIndex)>,
    /// Whether it is believed to be ready at first sight, as before a cluster forms: no learner may run in it.
    pub has_single_success_probe: bool,
}

impl Pod {
    /// Whether the pod was made for another spec hash than this. `false` if either is not known.
    pub fn has_other_spec_hash(&self, wanted: Option<&String>) -> bool {
        wanted
            .zip(self.spec_hash.as_ref())
            .is_some_and(|(wanted, made_for)| wanted != made_for)
    }
}

/// The container that fetches the backup of a restore onto the volume of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetch {
    /// Whether it is done.
    pub is_done: bool,
    /// Whether it runs.
    pub is_running: bool,
    /// Bytes that have arrived, of how many, while it runs and tells.
    pub progress: Option<(u64, u64)>,
    /// Why it failed the last time.
    pub failure: Option<FetchFailure>,
    /// The claim of the backups, if they lie in one: it is mounted for as long as the pod exists.
    pub claim: Option<String>,
}

/// Why the backup of a restore was not fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchFailure {
    /// The cause.
    pub words: String,
    /// Whether another try would not help.
    pub is_lasting: bool,
}

/// What the etcd container of a pod does.
#[derive(Clone, Debug, PartialEq)]
pub enum Container {
    /// It has not been started.
    Waiting(StartDelay),
    /// It runs.
    Running,
    /// It has ended.
    Ended {
        /// Its exit code.
        code: i32,
        /// The log line that explains the exit best; empty if there was none.
        line: String,
        /// Whether its last lines say that etcd died of damaged data.
        is_data_damaged: bool,
    },
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The exit code.
    pub code: i32,
    /// The cause, as far as it is recognized.
    pub cause: EndCause,
    /// The log line that explains the exit best.
    pub line: String,
}

/// Why a container ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// The kernel killed it for lack of memory.
    OutOfMemory,
    /// etcd does not know or cannot read a flag: every start ends like this.
    InvalidFlags,
    /// The volume holds data or log entries of etcd's API v2, which etcd 3.6 and newer refuse.
    ApiV2Data,
    /// Anything else.
    Other,
}

/// What plans need of a member's PersistentVolumeClaim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its UID.
    pub uid: String,
    /// The volume it is bound to.
    pub volume: Option<String>,
    /// Whether it is being deleted, and what holds it.
    pub deleting: Option<Vec<String>>,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// The node that its volume was made for.
    pub node: Option<String>,
    /// The StorageClass that it asks for.
    pub class: Option<String>,
}
