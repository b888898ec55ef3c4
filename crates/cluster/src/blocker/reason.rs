//! The reasons of blockers, as the status and metrics name them, with their documentation.

macro_rules! reasons {
    ($($name:ident: $meaning:literal, $remedy:literal;)+) => {
        /// The reason of a blocker.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum BlockerReason {
            $(#[doc = $meaning] $name,)+
        }

        impl BlockerReason {
            /// All reasons.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The word in the status.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// What it means.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning,)+
                }
            }

            /// What the user should do.
            pub fn remedy(self) -> &'static str {
                match self {
                    $(Self::$name => $remedy,)+
                }
            }
        }
    };
}

reasons! {
    Alarm: "etcd has raised an alarm.",
        "NOSPACE: free space or compact, defragment and disarm. CORRUPT: compare the members with `etcdctl endpoint hashkv`.";
    ClaimDeleted: "The PersistentVolumeClaim of a running member was deleted. Its data are lost with its pod.",
        "While the other members are healthy, delete the pod: the member gets another volume and the data from the others.";
    ContainerEnded: "The etcd container of a member has ended.",
        "Correct the cause that the message shows.";
    ContainerNotStarted: "The kubelet has not started the etcd container of a member.",
        "The message shows why, and which field helps.";
    CorruptAlarm: "etcd has raised the alarm CORRUPT, and the data do not show which member is wrong.",
        "Find the wrong member with `etcdctl endpoint hashkv`. Have it replaced with the annotation that the message names.";
    FetchContainerMissing: "A pod was created without the container that fetches the backup.",
        "Nothing. The operator re-creates the pod.";
    FetchFailed: "A member cannot fetch the backup, and retrying does not help.",
        "Correct the cause in the message, or restore another backup.";
    FetchRunning: "A member fetches the backup.",
        "Nothing, unless the message shows a failure.";
    ForeignData: "The volume of a member holds data of another cluster.",
        "Attach the right volume, or consent to deleting the data with the annotation that the message names.";
    HoldsPreparedData: "A volume holds data that a restore has prepared and that are not in use.",
        "Restore again.";
    InvalidFlags: "etcd ends at once because it does not accept a flag.",
        "Correct `spec.etcd.extraArgs`.";
    KeptVolumeRejected: "A volume named in the adopt annotation is not the one that was kept for this member.",
        "Attach the volume that was kept, not a copy or the volume of another member.";
    KeptVolumesDiffer: "The volumes named in the adopt annotation belong to different clusters or incarnations.",
        "Name only volumes of one cluster and incarnation.";
    LearnerNotPromoted: "A learner must be promoted before the next member is added.",
        "Nothing. The operator promotes it when it has the data.";
    MemberLagging: "A voter responds and is far behind the others.",
        "Wait. If it stays behind, look at its disk and network.";
    MemberNotStarted: "A member was added and has not started. It must start before the next one is added.",
        "See why its pod does not start.";
    MemberUnhealthy: "A voter does not respond, follows no leader or is behind.",
        "Repair it. If it cannot recover, delete its PersistentVolumeClaim and its pod: the operator replaces it.";
    MemberUnreachable: "The pod of a member runs and does not answer the operator.",
        "Look at the log of the pod, and at NetworkPolicies and certificates.";
    MembershipUnknown: "A voter did not return the membership.",
        "See the call that failed in the message.";
    NewerIncarnation: "A volume holds data of a newer incarnation than the status. The status may have been lost.",
        "Restore the EtcdCluster with its status, or restore a backup into a new one.";
    NoLeader: "A voter responds and follows no leader.",
        "Repair the other voters.";
    NoQuorum: "A voter responds, and too few others do.",
        "Repair the other voters.";
    OnlyVoter: "The only voter cannot be removed.",
        "Increase `spec.size` first.";
    OtherClusterResponds: "Another etcd cluster responds at the addresses of this one.",
        "Find out which cluster uses the addresses, and stop it.";
    PermitUnused: "A member may start and has not started.",
        "Nothing, unless it lasts. Then look at the log of its pod.";
    PodMissing: "A member has no pod.",
        "If none comes, `kubectl describe statefulset` shows why.";
    PodNotReady: "The pod of a member is not ready.",
        "Nothing, unless it lasts. Then look at the log of the pod.";
    PodTerminating: "The pod of a member is being deleted.",
        "Nothing, unless it lasts. Then look at its node.";
    PodUnschedulable: "The scheduler finds no node for the pod of a member.",
        "The message shows what nodes lack, and which field asks for it.";
    RemovalBreaksQuorum: "Without the member too few healthy voters would be left.",
        "Repair the other voters.";
    ReportMissing: "The process in a pod has not reported what is on its volume.",
        "Nothing, unless it lasts. Then look at the log of the pod.";
    RestoreFailed: "A member cannot restore the backup, and retrying does not help.",
        "Correct the cause in the message, or restore another backup.";
    RestoreMissed: "A member was not prepared before the restore was committed.",
        "Nothing. The operator replaces it once the others serve.";
    RestoreRunning: "A member restores the backup, or is about to.",
        "Nothing, unless the message shows a failure.";
    RestoreStalled: "No member of a committed restore makes progress.",
        "Correct the cause that the other blockers show, or restore another backup.";
    RestoredClustersDiffer: "Members have restored different clusters from one backup.",
        "Delete the EtcdRestore and create another one.";
    StopUnconfirmed: "An old pod may still run, because its node does not confirm that it has stopped.",
        "Repair or delete the node.";
    TemplateIncarnation: "The pod template does not have the incarnation of the kept volumes yet.",
        "Nothing. If it lasts, see the condition Applied.";
    TemplateNotApplied: "The StatefulSet has not accepted the template that the next pod needs.",
        "See the condition Applied.";
    TemplateNotServed: "A member cannot use its volume, and no voter has served with its pod template yet. The template can be the cause.",
        "Correct the image, version, user or `spec.pod.patch`. If the volume is at fault, have the member replaced with the annotation that the message names.";
    TooFewVoters: "There are fewer voters than `spec.size`, so no healthy member is removed.",
        "Nothing. The missing members join first.";
    UnknownVolume: "An annotation names the UID of a PersistentVolumeClaim that does not exist.",
        "Correct the annotation. It takes UIDs, not names.";
    UnmanagedMember: "A member of etcd has no address of this cluster and counts for its quorum.",
        "Unless you added it on purpose, remove it with `etcdctl member remove`.";
    VolumeInUse: "A PersistentVolumeClaim is being deleted, and finalizers hold it.",
        "Find what uses the volume.";
    VolumeNotEmpty: "A volume holds data where an empty one is needed.",
        "Consent to using or deleting the data with an annotation that the message names.";
    VolumeNotRestorable: "A volume holds data that a restore must not touch.",
        "If the data are not needed, delete the PersistentVolumeClaim and the pod.";
    VolumeOlderThanCluster: "A volume is older than the EtcdCluster, so it may hold data that you need.",
        "Consent to its use with the annotation that the message names.";
    VolumeReplaced: "Another volume is attached in the place of a member's own.",
        "Attach the right volume, or declare this one to be right with the annotation that the message names.";
    VolumeUnreadable: "A member cannot read its volume.",
        "Repair the volume, or have the member replaced with the annotation that the message names.";
    VotersUnhealthy: "Too few voters are healthy to promote a learner.",
        "Repair the other voters.";
    WaitsForPermit: "A member waits for its permit while no voter returns the membership.",
        "Attach its own volume, or repair the other voters.";
}
