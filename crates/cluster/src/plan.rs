//! What to do next about one cluster: from what was seen to at most one step. Pure: the same world gives the same plan.
//!
//! Passes are asked in a fixed order, and the first that has something to say is heard. A pass never sends anything:
//! it says which intent must stand in the status, and which single step may follow once it does. What cannot be seen
//! counts as unsafe.

mod adopt;
mod alarms;
mod awaits;
mod bootstrap;
mod corrected;
mod corrupt;
mod evidence;
mod formed;
mod grants;
mod join;
mod remove;
mod replace;
mod request;
mod restore;
mod safety;
mod scale;
mod shape;
mod silent;
mod situation;
mod start_over;
#[cfg(test)]
mod tests;
mod unknown;
mod wake;

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_operator_api::contract::Permit;
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::status::Alarm;

use crate::intent::{Intent, What};
use crate::memory::{Memory, Restore};
use crate::world::{Ordinal, World};

pub use evidence::{Evidence, evidence};
pub use restore::told;
pub use shape::{Fetching, Shape};
pub use silent::cause;
pub use situation::{CUT_OFF, Situation, majority};

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What is to be known from now on; the intent of the step is part of it.
    pub memory: Memory,
    /// The shape of the objects; none leaves all objects as they are.
    pub shape: Option<Shape>,
    /// The one step, to be taken once `memory` is stored.
    pub step: Option<Step>,
    /// What the operator does or waits for, in words.
    pub why: Why,
    /// When to look again, if nothing happens before.
    pub wake: Duration,
    /// Places at which this process takes over what another one began, until their pods have been touched.
    pub owed: BTreeSet<Ordinal>,
}

/// One step. Each is fenced by what it names.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Touch pods that wait, so that a permit of a former leader that is on its way is refused.
    TakeOver(Vec<PodRef>),
    /// Give permits to waiting processes.
    Permit(Vec<(PodRef, Permit)>),
    /// Add a member to etcd's membership.
    Add {
        /// Its place.
        place: Ordinal,
        /// Whether it is to follow only, at first.
        learner: bool,
    },
    /// Make a learner a voter.
    Promote {
        /// Its place.
        place: Ordinal,
        /// Its ID.
        id: MemberId,
    },
    /// Hand leadership on.
    MoveLeader {
        /// Who leads.
        from: Ordinal,
        /// Who shall.
        to: MemberId,
    },
    /// Take a member out of etcd's membership.
    Remove {
        /// Its place, if it is one of the cluster's.
        place: Option<Ordinal>,
        /// Its ID.
        id: MemberId,
    },
    /// Delete a pod.
    DeletePod {
        /// Which one.
        pod: PodRef,
        /// How much time it has.
        leave: Leave,
    },
    /// Take back an alarm of a member that is no more.
    Disarm(Alarm),
    /// Delete a volume claim and the data on it.
    DeleteClaim {
        /// Its place.
        place: Ordinal,
        /// Its UID.
        uid: String,
    },
}

/// A pod as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// Its place.
    pub place: Ordinal,
    /// Its UID.
    pub uid: String,
}

/// How much time a pod has that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// As much as its own spec gives.
    Usual,
    /// A moment: its data are given up, or kept as they are. A leader would otherwise wait for one to take its place, while all
    /// others go as well.
    Short,
    /// None: its node, which is gone, is not waited for.
    None,
}

impl Leave {
    /// What is left of the usual one where a node may be gone.
    fn unless(is_lost: bool) -> Self {
        if is_lost { Self::None } else { Self::Usual }
    }

    /// Seconds, if not its own spec decides.
    pub fn seconds(self) -> Option<u32> {
        match self {
            Self::Usual => None,
            Self::Short => Some(1),
            Self::None => Some(0),
        }
    }
}

/// What the operator does or waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// In one word, for conditions.
    pub reason: Reason,
    /// In words.
    pub text: String,
    /// What must change before the next step is safe.
    pub blocked_by: Vec<String>,
}

/// Where a cluster stands, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// As asked for.
    Converged,
    /// The spec says to leave it alone.
    Paused,
    /// The spec is refused: nothing is done.
    Invalid,
    /// It has no pods, as asked for.
    Hibernated,
    /// It comes into being.
    Bootstrapping,
    /// Members come or go.
    Scaling,
    /// A member is replaced.
    Recovering,
    /// The data of a backup take the place of the cluster's.
    Restoring,
    /// Nothing of it starts before a restore brings its data.
    AwaitingRestore,
    /// It waits for something that comes by itself.
    Waiting,
    /// The next step would not be safe.
    Blocked,
    /// No pod that runs can be reached.
    MembersUnreachable,
    /// Too few voters answer.
    QuorumLost,
    /// No member has data any more.
    DataLost,
}

impl Reason {
    /// The word in conditions.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Converged => "Converged",
            Self::Paused => "Paused",
            Self::Invalid => "Invalid",
            Self::Hibernated => "Hibernated",
            Self::Bootstrapping => "Bootstrapping",
            Self::Scaling => "Scaling",
            Self::Recovering => "Recovering",
            Self::Restoring => "Restoring",
            Self::AwaitingRestore => "AwaitingRestore",
            Self::Waiting => "Waiting",
            Self::Blocked => "Blocked",
            Self::MembersUnreachable => "MembersUnreachable",
            Self::QuorumLost => "QuorumLost",
            Self::DataLost => "DataLost",
        }
    }
}

/// What a pass has to say.
#[derive(Debug)]
struct Proposal {
    intent: Option<What>,
    step: Option<Step>,
    why: Why,
}

impl Proposal {
    /// Go by this intent, and take no step yet.
    fn going(intent: What, reason: Reason, text: impl Into<String>) -> Self {
        Self {
            intent: Some(intent),
            step: None,
            why: Why::new(reason, text),
        }
    }

    /// Nothing is under way, and nothing is to be begun.
    fn idle(reason: Reason, text: impl Into<String>) -> Self {
        Self {
            intent: None,
            step: None,
            why: Why::new(reason, text),
        }
    }

    /// With this step.
    fn step(mut self, step: Step) -> Self {
        self.step = Some(step);
        self
    }

    /// With what stands in the way.
    fn blocked_by(mut self, blocked_by: Vec<String>) -> Self {
        self.why.blocked_by = blocked_by;
        self
    }
}

impl Why {
    fn new(reason: Reason, text: impl Into<String>) -> Self {
        Self {
            reason,
            text: text.into(),
            blocked_by: Vec::new(),
        }
    }
}

impl Plan {
    /// The same for a cluster whose spec is refused: it is looked at, and no more.
    #[must_use]
    pub fn refused(mut self) -> Self {
        if self.why.reason == Reason::Paused {
            self.why.reason = Reason::Invalid;
            "The spec is refused, and nothing is done before it is corrected. See the condition Accepted."
                .clone_into(&mut self.why.text);
        }
        self
    }

    /// The same once the member that it adds has this ID.
    #[must_use]
    pub fn with_added(mut self, id: MemberId) -> Self {
        if let Some(Intent {
            what: What::Join(join),
            ..
        }) = &mut self.memory.intent
        {
            join.id = Some(id);
        }
        self
    }
}

/// What to do next.
pub fn plan(world: &World) -> Plan {
    let frozen = restore::frozen(world);
    let world = frozen.as_ref().unwrap_or(world);
    let situation = Situation::of(world);
    let mut memory = situation.memory();
    let proposal = match decide(&situation, &mut memory) {
        Some(proposal) => proposal,
        None => Proposal {
            intent: memory.intent.clone().map(|intent| intent.what),
            ..Proposal::idle(Reason::Paused, "The cluster is paused: nothing is done about it.")
        },
    };
    // A restore has an eye on alarms of its own.
    let is_restored = memory.restore.as_ref().is_some_and(Restore::is_active);
    let proposal = if is_restored {
        proposal
    } else {
        alarms::told(world, proposal)
    };
    let keeps_hands_off = proposal.why.reason == Reason::Paused || memory.foreign_step.is_some();
    let Proposal { intent, step, why } = proposal;
    let owner = |what| Intent {
        instance: world.instance.clone(),
        incarnation: memory.incarnation,
        what,
    };
    if keeps_hands_off {
        memory.intent.clone_from(&world.memory.intent);
    } else {
        memory.intent = intent.map(owner);
    }
    let owed = owed(world, &memory);
    let (step, text) = match takeover(world, &owed) {
        Some(step) if !keeps_hands_off => (
            Some(step),
            "This process takes over what another one began.".to_owned(),
        ),
        _ => (step, why.text.clone()),
    };
    let wake = wake::wake(world, &memory, why.reason, step.is_some());
    Plan {
        shape: (!keeps_hands_off).then(|| Shape::of(&situation, &memory)),
        memory,
        step,
        why: Why { text, ..why },
        wake,
        owed,
    }
}

/// Where this process takes over what another one began, and has not done so yet. Whoever is not seen to run there may
/// be about to get a permit.
fn owed(world: &World, memory: &Memory) -> BTreeSet<Ordinal> {
    let mut places = world.owed.clone();
    if let (Some(before), Some(now)) = (&world.memory.intent, &memory.intent)
        && before.instance != now.instance
    {
        places.extend(before.what.places());
    }
    places.retain(|place| {
        let seen = world.seen(*place);
        seen.pod.is_some() && seen.status().is_none()
    });
    places
}

/// Before anything else every such pod is touched.
fn takeover(world: &World, owed: &BTreeSet<Ordinal>) -> Option<Step> {
    let pods = owed.iter().filter_map(|place| {
        let uid = world.seen(*place).pod.as_ref()?.uid.clone();
        Some(PodRef { place: *place, uid })
    });
    let pods: Vec<_> = pods.collect();
    (!pods.is_empty()).then_some(Step::TakeOver(pods))
}

/// The passes in their order; none when the cluster is to be left alone.
fn decide(situation: &Situation<'_>, memory: &mut Memory) -> Option<Proposal> {
    let world = situation.world;
    if let Some(kind) = &memory.foreign_step {
        let text = format!(
            "The status holds a step '{kind}' that this version of the operator does not know: it waits for one that does."
        );
        return Some(Proposal::idle(Reason::Blocked, text));
    }
    if world.desired.paused {
        return None;
    }
    if let Some(proposal) = restore::pass(situation, memory) {
        return Some(proposal);
    }
    if !memory.has_formed() {
        return Some(bootstrap::pass(situation, memory));
    }
    Some(formed::pass(situation))
}
