//! The operation that is written into the status before anything is done about it: after a crash or a change of
//! leaders, the next process knows what may have been done. Pure; what cannot be read back is no operation.

use std::collections::BTreeMap;
use std::fmt;

use etcd_operator_api::cluster::{StepIntent, StepTarget};
use etcd_operator_etcd_types::id::MemberId;

use crate::observed_state::Ordinal;

/// An operation as the status records it, with the process that recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingOperation {
    /// The process of the operator that goes by it.
    pub instance: String,
    /// The incarnation it is meant for.
    pub incarnation: i64,
    /// What is to be done.
    pub operation: Operation,
}

/// What is to be done, in one step or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Start all members together; the set is frozen, and so is to whom a permit may have been given.
    Bootstrap(BTreeMap<Ordinal, Grant>),
    /// Begin anew under another incarnation, because no quorum can be had from what was started.
    StartOver,
    /// Bring a member in.
    Join(Join),
    /// Take a member out for good.
    Remove {
        /// Its place.
        ordinal: Ordinal,
        /// Its ID.
        id: MemberId,
    },
    /// Take a member out because of what happened to its data, so that another one can take its place.
    Replace(Replace),
    /// Start a member whose volume is attached elsewhere now.
    Resume {
        /// Its place.
        ordinal: Ordinal,
        /// For whom.
        grant: Grant,
    },
    /// Start what is on kept volumes, by consent.
    Adopt(BTreeMap<Ordinal, Grant>),
    /// Delete a disk that is no member's, with the pod that holds it.
    Discard(Discard),
    /// Restore into side directories.
    Prepare(BTreeMap<Ordinal, Grant>),
    /// Put restored directories in place and start.
    Swap(BTreeMap<Ordinal, Grant>),
}

/// A volume that belongs to no member. It is deleted, with the pod that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discard {
    /// Its place.
    pub ordinal: Ordinal,
    /// The UID of the claim, where there is one.
    pub claim: Option<String>,
    /// The UID of the pod that held it.
    pub pod: Option<String>,
}

/// The one process that a permit is for. It is recorded before the permit is written, so that no other one gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The UID of the pod.
    pub pod: String,
    /// The process in it.
    pub process: String,
    /// The nonce that process gave.
    pub nonce: String,
}

/// A member that joins: it is added to etcd, then the process in its pod is permitted to start as it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// Its place.
    pub ordinal: Ordinal,
    /// Its ID, once it has one.
    pub id: Option<MemberId>,
    /// Who may start as it.
    pub grant: Option<Grant>,
    /// How often that was begun.
    pub attempt: i64,
}

/// A member that is removed because of its data or its node, so that another one joins with its ordinal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replace {
    /// Its place.
    pub ordinal: Ordinal,
    /// Its ID.
    pub id: MemberId,
    /// What happened.
    pub cause: Cause,
    /// The UID of its pod, where there was one.
    pub pod: Option<String>,
    /// The UID of its claim, where there was one.
    pub claim: Option<String>,
    /// How often that was begun.
    pub attempt: i64,
}

/// Why a member is replaced: always something about its data, or a node that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Its disk is empty, or what was on it never ran.
    DiskEmpty,
    /// Its data cannot be read any more.
    DiskDamaged,
    /// Its data are of another life of the cluster.
    OtherIncarnation,
    /// Another volume lies in the place of its own.
    OtherVolume,
    /// A disk of somebody else, which a person has given up.
    Discarded,
    /// Its kept volume was not there when the others were taken over.
    LeftBehind,
    /// etcd found that its data differ from the others'.
    Corrupt,
    /// Its node has been gone for too long.
    NodeLost,
    /// A person gave it up.
    Requested,
    /// Its pod has an earlier template, and its data live with the pod.
    Outdated,
}

impl Cause {
    const ALL: [Self; 10] = [
        Self::DiskEmpty,
        Self::DiskDamaged,
        Self::OtherIncarnation,
        Self::OtherVolume,
        Self::Discarded,
        Self::LeftBehind,
        Self::Corrupt,
        Self::NodeLost,
        Self::Requested,
        Self::Outdated,
    ];

    /// The word in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DiskEmpty => "DiskEmpty",
            Self::DiskDamaged => "DiskDamaged",
            Self::OtherIncarnation => "OtherIncarnation",
            Self::OtherVolume => "StaleVolume",
            Self::Discarded => "Discarded",
            Self::LeftBehind => "LeftBehind",
            Self::Corrupt => "Corrupt",
            Self::NodeLost => "NodeLost",
            Self::Requested => "Requested",
            Self::Outdated => "Outdated",
        }
    }

    /// Whether the volume of a replaced member is kept for the next one: only an empty one, any other is deleted.
    pub fn keeps_disk(self) -> bool {
        self == Self::DiskEmpty
    }
}

/// For people.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DiskEmpty => "its disk is empty",
            Self::DiskDamaged => "its data are damaged",
            Self::OtherIncarnation => "its data are of an earlier life of the cluster",
            Self::OtherVolume => "another volume lies in the place of its own, or its own as it was before",
            Self::Discarded => "its disk was given up by annotation",
            Self::LeftBehind => {
                "its volume is none of those that were taken over: it came too late, is a copy, or holds data of another cluster"
            },
            Self::Corrupt => "etcd found that its data differ from the others'",
            Self::NodeLost => "its node has been gone for too long",
            Self::Requested => "a person asked for it by annotation",
            Self::Outdated => "its pod has an earlier template, and its data live with the pod",
        })
    }
}

impl Operation {
    /// The word in the status.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Bootstrap(_) => "Bootstrap",
            Self::StartOver => "StartOver",
            Self::Join(_) => "Join",
            Self::Remove { .. } => "Remove",
            Self::Replace(_) => "Replace",
            Self::Resume { .. } => "Resume",
            Self::Adopt(_) => "Adopt",
            Self::Discard(_) => "Discard",
            Self::Prepare(_) => "RestorePrepare",
            Self::Swap(_) => "RestoreSwap",
        }
    }

    /// The grant for the process at this ordinal. `None` if it gets no permit, or if none is recorded yet.
    pub fn grant(&self, ordinal: Ordinal) -> Option<&Grant> {
        match self {
            Self::Bootstrap(targets)
            | Self::Adopt(targets)
            | Self::Prepare(targets)
            | Self::Swap(targets) => targets.get(&ordinal),
            Self::Join(join) => join.grant.as_ref().filter(|_| join.ordinal == ordinal),
            Self::Resume { ordinal: own, grant } => Some(grant).filter(|_| *own == ordinal),
            Self::StartOver | Self::Remove { .. } | Self::Replace(_) | Self::Discard(_) => None,
        }
    }

    /// The ordinals that it is about. None for `StartOver`, which gives no permits.
    pub fn ordinals(&self) -> Vec<Ordinal> {
        match self {
            Self::Bootstrap(targets)
            | Self::Adopt(targets)
            | Self::Prepare(targets)
            | Self::Swap(targets) => targets.keys().copied().collect(),
            Self::StartOver => Vec::new(),
            Self::Join(join) => vec![join.ordinal],
            Self::Replace(replace) => vec![replace.ordinal],
            Self::Discard(discard) => vec![discard.ordinal],
            Self::Remove { ordinal, .. } | Self::Resume { ordinal, .. } => vec![*ordinal],
        }
    }
}

impl PendingOperation {
    /// As it stands in the status.
    pub fn write(&self, name: impl Fn(Ordinal) -> String) -> StepIntent {
        let granted = |(ordinal, grant): (&Ordinal, &Grant)| grant.target(name(*ordinal));
        let (targets, cause, attempt) = match &self.operation {
            Operation::Bootstrap(targets)
            | Operation::Adopt(targets)
            | Operation::Prepare(targets)
            | Operation::Swap(targets) => (targets.iter().map(granted).collect(), None, None),
            Operation::StartOver => (Vec::new(), None, None),
            Operation::Resume { ordinal, grant } => (vec![grant.target(name(*ordinal))], None, None),
            Operation::Remove { ordinal, id } => {
                let target = StepTarget {
                    member: name(*ordinal),
                    id: Some(id.to_string()),
                    ..StepTarget::default()
                };
                (vec![target], None, None)
            }
            Operation::Discard(discard) => {
                let target = StepTarget {
                    member: name(discard.ordinal),
                    claim_uid: discard.claim.clone(),
                    pod_uid: discard.pod.clone(),
                    ..StepTarget::default()
                };
                (vec![target], None, None)
            }
            Operation::Join(join) => {
                let of_grant = join.grant.as_ref().map(|grant| grant.target(String::new()));
                let target = StepTarget {
                    member: name(join.ordinal),
                    id: join.id.map(|id| id.to_string()),
                    ..of_grant.unwrap_or_default()
                };
                (vec![target], None, Some(join.attempt))
            }
            Operation::Replace(replace) => {
                let target = StepTarget {
                    member: name(replace.ordinal),
                    id: Some(replace.id.to_string()),
                    pod_uid: replace.pod.clone(),
                    claim_uid: replace.claim.clone(),
                    ..StepTarget::default()
                };
                (vec![target], Some(replace.cause), Some(replace.attempt))
            }
        };
        StepIntent {
            kind: self.operation.kind().to_owned(),
            instance: Some(self.instance.clone()),
            incarnation: Some(self.incarnation),
            cause: cause.map(|cause| cause.as_str().to_owned()),
            attempt,
            targets: Some(targets).filter(|targets| !targets.is_empty()),
        }
    }

    /// Reads the step of a status. `None` if this version does not know it, or if a needed part is missing.
    pub fn read(step: &StepIntent, ordinal: impl Fn(&str) -> Option<Ordinal>) -> Option<Self> {
        let targets = step.targets.as_deref().unwrap_or_default();
        let one = || match targets {
            [target] => Some((ordinal(&target.member)?, target)),
            _ => None,
        };
        let id = |target: &StepTarget| target.id.as_deref()?.parse().ok();
        let all = || -> Option<BTreeMap<_, _>> {
            let granted = targets
                .iter()
                .map(|target| Some((ordinal(&target.member)?, Grant::read(target)?)));
            granted.collect()
        };
        let attempt = step.attempt.unwrap_or(1);
        let operation = match step.kind.as_str() {
            "Bootstrap" => Operation::Bootstrap(all()?),
            "Adopt" => Operation::Adopt(all()?),
            "RestorePrepare" => Operation::Prepare(all()?),
            "RestoreSwap" => Operation::Swap(all()?),
            "StartOver" => Operation::StartOver,
            "Join" => {
                let (ordinal, target) = one()?;
                Operation::Join(Join {
                    ordinal,
                    id: id(target),
                    grant: Grant::read(target),
                    attempt,
                })
            }
            "Remove" => {
                let (ordinal, target) = one()?;
                Operation::Remove {
                    ordinal,
                    id: id(target)?,
                }
            }
            "Discard" => {
                let (ordinal, target) = one()?;
                Operation::Discard(Discard {
                    ordinal,
                    claim: target.claim_uid.clone(),
                    pod: target.pod_uid.clone(),
                })
            }
            "Resume" => {
                let (ordinal, target) = one()?;
                Operation::Resume {
                    ordinal,
                    grant: Grant::read(target)?,
                }
            }
            "Replace" => {
                let (ordinal, target) = one()?;
                let cause = step.cause.as_deref()?;
                Operation::Replace(Replace {
                    ordinal,
                    id: id(target)?,
                    cause: Cause::ALL.into_iter().find(|known| known.as_str() == cause)?,
                    pod: target.pod_uid.clone(),
                    claim: target.claim_uid.clone(),
                    attempt,
                })
            }
            _ => return None,
        };
        Some(Self {
            instance: step.instance.clone().unwrap_or_default(),
            incarnation: step.incarnation?,
            operation,
        })
    }
}

impl Grant {
    fn target(&self, member: String) -> StepTarget {
        StepTarget {
            member,
            pod_uid: Some(self.pod.clone()),
            process: Some(self.process.clone()),
            nonce: Some(self.nonce.clone()),
            ..StepTarget::default()
        }
    }

    fn read(target: &StepTarget) -> Option<Self> {
        Some(Self {
            pod: target.pod_uid.clone()?,
            process: target.process.clone()?,
            nonce: target.nonce.clone()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etcd_operator_api::names::ClusterName;

    fn grant(pod: &str) -> Grant {
        Grant {
            pod: pod.to_owned(),
            process: "p".to_owned(),
            nonce: "n".to_owned(),
        }
    }

    #[test]
    fn every_intent_is_read_back_as_it_was_written() {
        let cluster: ClusterName = "orders".parse().expect("a name");
        let ordinal = |number| Ordinal::new(number).expect("a place");
        let id = MemberId::new(0xab).expect("an ID");
        let two = BTreeMap::from([(ordinal(0), grant("a")), (ordinal(1), grant("b"))]);
        let join = |id, grant| {
            Operation::Join(Join {
                ordinal: ordinal(2),
                id,
                grant,
                attempt: 2,
            })
        };
        let replace = |cause| {
            Operation::Replace(Replace {
                ordinal: ordinal(2),
                id,
                cause,
                pod: Some("pod".to_owned()),
                claim: None,
                attempt: 1,
            })
        };
        let mut all = vec![
            Operation::Bootstrap(two.clone()),
            Operation::Adopt(two.clone()),
            Operation::Prepare(two.clone()),
            Operation::Swap(two),
            Operation::StartOver,
            join(None, None),
            join(Some(id), Some(grant("c"))),
            Operation::Remove {
                ordinal: ordinal(4),
                id,
            },
            Operation::Resume {
                ordinal: ordinal(0),
                grant: grant("d"),
            },
            Operation::Discard(Discard {
                ordinal: ordinal(1),
                claim: Some("c".to_owned()),
                pod: None,
            }),
        ];
        all.extend(Cause::ALL.map(replace));
        for operation in all {
            let pending = PendingOperation {
                instance: "me".to_owned(),
                incarnation: 3,
                operation,
            };
            let step = pending.write(|ordinal| ordinal.name(&cluster));
            let json = serde_json::to_string(&step).expect("JSON");
            let step = serde_json::from_str(&json).expect("a step");
            let read = PendingOperation::read(&step, |name| Ordinal::from_name(&cluster, name));
            assert_eq!(read, Some(pending));
        }
    }
}
