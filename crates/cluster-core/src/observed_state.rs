//! What was seen of one cluster at one moment, as plain data. Pure; what could not be seen is said to be unknown, never
//! left out as if it were not there.

mod backup;
mod call_failure;
mod container_log;
mod external_text;
mod image_check;
pub mod kube_objects;
mod member;
mod membership;
mod ordinal;
mod permit_delivery;
mod pod_admission;
mod start_delay;

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_api::contract::RestoreIntent;
use etcd_operator_etcd_types::id::{ClusterId, MemberId};
use etcd_operator_etcd_types::membership::{Known, Member};
use etcd_operator_etcd_types::status::Alarm;
use etcd_operator_etcd_types::url::PeerUrl;
use etcd_operator_etcd_types::version::Version;
use jiff::Timestamp;

pub use backup::{ObservedBackup, RunningBackup};
pub use call_failure::{CallClass, CallFailure};
pub use external_text::{container_end, ended_container};
pub use image_check::{ImageCheck, ImageJob, ImageProblem, read_image_job};
pub use member::{Claim, Container, End, EndCause, Fetch, FetchFailure, ObservedMember, Pod, QueryResult};
pub use membership::{Digest, Membership, MembershipFailure, ServerCertificateFault};
pub use ordinal::Ordinal;
pub use permit_delivery::PermitDelivery;
pub use pod_admission::PodAdmission;
pub use start_delay::{Obstacle, StartDelay, Unschedulable, WaitingCause, WaitingContainer};

use crate::blocker::Blocker;
use crate::desired::Desired;
use crate::persisted_state::PersistedState;

/// What was observed of one cluster, and what its spec and status say: all that a plan is made from.
#[derive(Clone, Debug)]
pub struct ObservedCluster {
    /// The wall's clock, for what people read.
    pub now: Timestamp,
    /// This process of the operator.
    pub instance: String,
    /// The UID of the `EtcdCluster`.
    pub uid: String,
    /// The namespace of everything of it.
    pub namespace: String,
    /// When it was made.
    pub created: Timestamp,
    /// The generation of the spec.
    pub generation: i64,
    /// What the spec asks for.
    pub desired: Desired,
    /// What is known from before, from the status.
    pub persisted: PersistedState,
    /// PVC UIDs whose data a person has given up.
    pub discard: BTreeSet<String>,
    /// PVC UIDs whose data a person wants to be taken over.
    pub adopt: BTreeSet<String>,
    /// The restore that is asked for, or why that cannot be understood.
    pub restore: Result<Option<RestoreIntent>, String>,
    /// Whether that was over long ago, or nobody is there any more who asks for it: it must not begin.
    pub is_stale: bool,
    /// Whether the `EtcdRestore` of the restore under way is there, although the cluster is asked for nothing any more.
    pub is_requester_present: bool,
    /// Another `EtcdRestore` that is to take the place of the one under way, which lets nobody in yet and is gone.
    pub next_restore: Option<String>,
    /// The pod template that is asked for by now.
    pub wanted: WantedTemplate,
    /// The StatefulSet, if there is one.
    pub set: Option<ObservedStatefulSet>,
    /// What there is of each member, by its place.
    pub members: BTreeMap<Ordinal, ObservedMember>,
    /// The version that each member was last seen to run.
    pub recorded_versions: BTreeMap<Ordinal, Version>,
    /// The cluster version of etcd; read only while members or the spec differ in the minor version, none if no voter returned it.
    pub cluster_version: Option<Version>,
    /// Whether authentication is enabled in etcd; read only before a newer minor version, none if no voter returned it.
    pub is_auth_enabled: Option<bool>,
    /// Who the members are.
    pub membership: Membership,
    /// The members as the only voter that there was has them by itself, where no quorum can tell.
    pub local_membership: BTreeMap<MemberId, Member>,
    /// The alarms of etcd that stand.
    pub alarms: BTreeSet<Alarm>,
    /// Why they could not be read, although a member reports errors: there may be any.
    pub alarms_failure: Option<CallFailure>,
    /// What members have at one revision; asked only while an alarm says that their data differ.
    pub digests: BTreeMap<MemberId, QueryResult<Digest>>,
    /// Why members do not accept the certificate of one of them, if so.
    pub server_certificate: Option<ServerCertificateFault>,
    /// Of which member a person says that another one is to take its place, as it was written.
    pub replace: Option<String>,
    /// Places at which this process took over what another one began, and whose pods are still to be touched.
    pub unfenced: BTreeSet<Ordinal>,
    /// The `EtcdBackup`s that a backup before a newer minor version can be requested from, by name; read only while such a
    /// change is pending.
    pub upgrade_backups: Vec<ObservedBackup>,
    /// Backups of the cluster that run; read only while members are to be restarted.
    pub running_backups: Vec<RunningBackup>,
    /// Whether the API server would create the pods of the changed template; asked only if nothing else keeps the template from
    /// changing.
    pub pod_admission: PodAdmission,
    /// Whether the etcd image of the changed template can be used; asked only if nothing else keeps the template from changing.
    pub image_check: ImageCheck,
}

/// The pod template that the StatefulSet is to have next, and whether it may change now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedTemplate {
    /// Its spec hash.
    pub spec_hash: String,
    /// The version of etcd in it: the next one on the way to what the spec asks for.
    pub version: Version,
    /// The image of etcd in it.
    pub image: String,
    /// The versions after it; the last one is what the spec asks for.
    pub later_versions: Vec<Version>,
    /// After how many entries of the log members take a snapshot of it, if that is not what the spec says.
    pub snapshot_count: Option<u64>,
    /// Why the version that the spec asks for cannot be reached.
    pub version_blocker: Option<Blocker>,
    /// The last request by `kubectl rollout restart` that counts, if there ever was one.
    pub restarted_at: Option<String>,
    /// Whether an annotation asks for a restart that the present template was not made for.
    pub is_restart_requested: bool,
    /// Whether the members may be restarted now, though others' are, too: not all clusters are restarted at once.
    pub has_slot: bool,
}

/// What plans need of the StatefulSet of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedStatefulSet {
    /// How many pods it keeps.
    pub replicas: u16,
    /// The incarnation that its pods expect.
    pub incarnation: i64,
    /// etcd's ID of the cluster, as noted on it.
    pub cluster: Option<ClusterId>,
    /// The voters, as noted on it.
    pub voters: BTreeSet<Ordinal>,
    /// What the user asked for when its template was made.
    pub spec_hash: Option<String>,
    /// The version of etcd in its template.
    pub version: Option<Version>,
    /// The image of etcd in its template.
    pub image: Option<String>,
    /// The size that its members may let their databases grow to, where its template says so.
    pub quota: Option<u64>,
    /// After how many entries of the log its members take a snapshot of it, where its template says so.
    pub snapshot_count: Option<u64>,
    /// Its generation, if its controller has not seen that yet and may still make pods from an earlier template.
    pub unseen_generation: Option<i64>,
    /// Whether its members speak TLS with one another.
    pub secure_peers: bool,
    /// Whether its members speak TLS with clients.
    pub secure_clients: bool,
    /// Whether pods that are made from it are believed to be ready at first sight, as before a cluster forms.
    pub has_single_success_probe: bool,
}

impl WantedTemplate {
    /// The version that the spec asks for, which may be several minor versions away.
    pub fn target(&self) -> &Version {
        self.later_versions.last().unwrap_or(&self.version)
    }
}

impl ObservedCluster {
    /// Whether any pod of its members is left, also one that is being deleted.
    pub fn has_pods(&self) -> bool {
        self.members.values().any(|member| member.pod.is_some())
    }

    /// Whether a call to a running pod got no answer in time: the next look will wait for that, too.
    pub fn has_silent_member(&self) -> bool {
        self.members.values().any(|member| {
            let failure = member.status.failure();
            failure.is_some_and(|failure| failure.class == CallClass::Other)
        })
    }

    /// The members, if a voter returned them by a linearizable read. Where this is `None`, the membership must not
    /// change.
    pub fn known(&self) -> Option<&Known> {
        match &self.membership {
            Membership::Known(known) => Some(known),
            Membership::Unknown(_) => None,
        }
    }

    /// The peer URL of the member with this ordinal. Its scheme is that of the stored pod template, not of the spec: a
    /// changed template waits for its gate.
    pub fn peer_url(&self, ordinal: Ordinal) -> PeerUrl {
        let wanted = self.desired.tls.peer.is_some();
        let is_secure = self.set.as_ref().map_or(wanted, |set| set.secure_peers);
        ordinal.peer_url(&self.desired.name, &self.namespace, is_secure)
    }

    /// The ordinal in the first of these peer URLs that is one of this cluster's.
    pub fn ordinal_at(&self, urls: &[PeerUrl]) -> Option<Ordinal> {
        let ordinal = |url| Ordinal::from_peer_url(url, &self.desired.name, &self.namespace);
        urls.iter().find_map(ordinal)
    }

    /// The member of etcd with the peer URL of this ordinal. `None` also while the membership is unknown.
    pub fn etcd_member(&self, ordinal: Ordinal) -> Option<&Member> {
        self.etcd_member_in(self.known()?, ordinal)
    }

    /// The one of these members that has the peer URL of this ordinal.
    pub fn etcd_member_in<'k>(&self, known: &'k Known, ordinal: Ordinal) -> Option<&'k Member> {
        let mut members = known.members.values();
        members.find(|member| self.ordinal_at(&member.peer_urls) == Some(ordinal))
    }

    /// What was observed at this ordinal; nothing if there is neither pod nor claim.
    pub fn member(&self, ordinal: Ordinal) -> &ObservedMember {
        static ABSENT: ObservedMember = ObservedMember::ABSENT;
        self.members.get(&ordinal).unwrap_or(&ABSENT)
    }

    /// The name of the member with this ordinal.
    pub fn name(&self, ordinal: Ordinal) -> String {
        ordinal.name(&self.desired.name)
    }
}
