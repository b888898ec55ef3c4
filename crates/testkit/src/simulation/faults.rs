//! What can go wrong by chance, drawn from a seed. Each draw is its own, so that leaving one out moves none of the others.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use super::tally::{STEPS, calls_of};
use crate::chance::Chance;
use crate::gate::Side;
use crate::machine::{MISLABELLED_FOR_MEMBERS_REPOSITORY, MISLABELLED_REPOSITORY, MISREADING_REPOSITORY};

/// How many faults a schedule may have beyond those it asks for.
const MORE: u32 = 24;
/// About so much follows from faults that are under way: with so much missing they no longer come upon one another, or much
/// more would have happened in the end than was asked for.
const NEAR: u64 = 70;
/// About so much follows from a fault of which little follows.
const LITTLE: u64 = 30;
/// How often another fault is drawn where little is to follow.
const REDRAWS: usize = 8;

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process of a member is killed.
    Kill(String),
    /// It is stopped for a while.
    Stop(String, Duration),
    /// A member is cut off from all others for a while.
    Part(String, Duration),
    /// What a member sends does not arrive at another one for a while.
    Deafen(String, String, Duration),
    /// The disk of a member is emptied under its pod.
    Wipe(String),
    /// Its data is damaged.
    Damage(String),
    /// Its disk is full for a while.
    Fill(String, Duration),
    /// Its disk cannot be read for a while.
    Block(String, Duration),
    /// A claim on a volume made from a snapshot that is so old takes the place of its own.
    Exchange(String, Duration),
    /// A claim on a copy of another member's volume takes the place of its own.
    Clone(String, String),
    /// The volumes of two members change places.
    Swap(String, String),
    /// Its own volume is attached elsewhere, with all that is on it.
    Reattach(String),
    /// Somebody does not let its claim go for a while.
    HoldClaim(String, Duration),
    /// Its pod is deleted by somebody.
    DeletePod(String),
    /// Its pod is evicted, as a drain does.
    Evict(String),
    /// Its node loses power for a while.
    LoseNode(String, Duration),
    /// Its kubelet loses the API server for a while.
    CutKubelet(String, Duration),
    /// Its kubelet is late with files for a while.
    Late(String, Duration),
    /// No node takes it for a while.
    Unschedulable(String, Duration),
    /// The operator is killed at its nth passing.
    Crash(u64),
    /// The operator is killed at one side of its next call of this name.
    CrashAround(String, Side),
    /// The operator is stopped for a while, and another one starts beside it.
    Overtake(Duration),
    /// The same, stopped right before its next call of this name.
    OvertakeAt(String, Duration),
    /// The operator hears nothing of changes for a while.
    Blind(Duration),
    /// Every watch breaks, and what happened meanwhile is never told.
    CutWatches,
    /// The API server refuses so many requests of the operator.
    Refuse(u32),
    /// The answer to a write of the operator is lost.
    LoseWrite,
    /// A write of the operator arrives twice.
    Duplicate,
    /// The answer to a change of members is lost.
    LoseChange,
    /// Something befalls the next learner once it has caught up.
    Befall(Mishap, Duration),
    /// The operator does not reach these members for a while, though they run and reach one another.
    Isolate(Vec<String>, Duration),
    /// Calls to members are slow for a while.
    Slow(Duration),
    /// A child of the cluster is deleted by somebody.
    DeleteChild(&'static str),
    /// The status of the cluster is lost.
    LoseStatus,
    /// Somebody writes this into the status of the cluster.
    Meddle(Meddling),
    /// Names do not resolve at first starts for a while.
    Nameless(Duration),
    /// A process that begins dies in the middle of writing down that it does, after so many steps.
    DieYoung(String, usize),
    /// The API server does not let the operator write to objects of this kind, so many times.
    Forbid(&'static str, u16, u32),
    /// A user wants another member in the place of one.
    GiveUp(String),
    /// A user wants another size.
    Resize(u8),
    /// A user wants no member for a while.
    Hibernate(Duration),
    /// A user wants nothing done for a while.
    Pause(Duration),
    /// A user changes the environment of etcd, which reaches members by a restart.
    ChangePods(u64),
    /// The spec asks for a version that is so many minor versions newer, as far as there are such.
    Upgrade(u32),
    /// A user names a repository of images that do not work, and sets it back after a while.
    BadImage(&'static str, Duration),
}

/// Repositories of images whose tags lie.
const MISLABELLED: [&str; 2] = [MISLABELLED_REPOSITORY, MISLABELLED_FOR_MEMBERS_REPOSITORY];

/// What befalls a learner that has caught up, right before it would get its vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// It is lost for a while, and the operator with it for a shorter one, as on one node.
    LostWithOperator,
    /// It hears nothing of the others for a while.
    Deaf,
    /// It is stopped for a while just as it votes.
    StoppedAsItVotes,
    /// Its disk is emptied, and so are those that come after it.
    EmptiedAgain,
    /// Its pod goes, and finds no node for a while.
    Homeless,
}

/// All of them, those first that are seldom met.
const MISHAPS: [Mishap; 8] = [
    Mishap::LostWithOperator,
    Mishap::LostWithOperator,
    Mishap::LostWithOperator,
    Mishap::Deaf,
    Mishap::StoppedAsItVotes,
    Mishap::EmptiedAgain,
    Mishap::EmptiedAgain,
    Mishap::Homeless,
];

/// How faults are drawn.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The cluster they are about.
    pub cluster: String,
    /// The number of the first one.
    pub first: u32,
    /// How many are drawn, of which some cannot be borne at their time.
    pub faults: u32,
    /// With more of them it goes on, for a while, until there were so many.
    pub least: usize,
    /// The same until so much has happened in all.
    pub events: u64,
    /// The time between two of them, least and most.
    pub between: (Duration, Duration),
    /// Sizes that a user may want; empty if the size stays.
    pub sizes: Vec<u8>,
    /// The data of a member ends with its pod.
    pub is_fleeting: bool,
    /// Somebody will give up volumes with the data of others, which no operator does by itself.
    pub has_person: bool,
    /// Only the faults of these numbers; all if there are none.
    pub only: Option<BTreeSet<u32>>,
}

impl Schedule {
    /// So many faults of a cluster, the next one often before the last is healed.
    pub fn of(cluster: &str, faults: u32) -> Self {
        Self {
            cluster: cluster.to_owned(),
            first: 0,
            faults,
            least: 0,
            events: 0,
            between: (Duration::from_millis(200), Duration::from_secs(40)),
            sizes: Vec::new(),
            is_fleeting: false,
            has_person: false,
            only: None,
        }
    }

    /// The numbers that its faults may have.
    pub fn numbers(&self) -> Range<u32> {
        self.first..self.first + self.faults + MORE
    }

    /// Whether the fault of this number does not wait for those before it when so much has happened.
    pub(super) fn storms(&self, number: u32, events: u64) -> bool {
        number < self.first + self.faults || events + NEAR < self.events
    }

    /// Whether there is one more after so many, and when so much has happened.
    pub fn goes_on(&self, injected: usize, events: u64) -> bool {
        injected < self.least || events < self.events
    }

    /// Whether the fault of this number is to happen.
    pub fn has(&self, number: u32) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&number))
    }

    /// The next fault when so much has happened; where little is missing, one of which little follows, most of the times.
    pub(super) fn next(
        &self,
        chance: &mut Chance,
        members: &[String],
        flow: &str,
        events: u64,
    ) -> Option<Fault> {
        let mut drawn = self.draw(chance, members, flow);
        if events + LITTLE >= self.events {
            for _ in 0..REDRAWS {
                if drawn.as_ref().is_some_and(Fault::brings_little) {
                    break;
                }
                drawn = self.draw(chance, members, flow);
            }
        }
        drawn
    }

    /// A fault, for a cluster with members of these names, while its operator is about this. Whoever lies in wait
    /// for the operator mostly does so where it comes by soon.
    fn draw(&self, chance: &mut Chance, members: &[String], flow: &str) -> Option<Fault> {
        let member = chance.pick(members)?.clone();
        let other = chance.pick(members)?.clone();
        let short = chance.between(Duration::from_millis(500), Duration::from_secs(20));
        let long = chance.between(Duration::from_secs(10), Duration::from_secs(90));
        let any = *chance.pick(&STEPS)?;
        let near = chance.pick(calls_of(flow)).copied();
        let step = near.filter(|_| !chance.one_in(4)).unwrap_or(any).to_owned();
        let side = *chance.pick(&[Side::Before, Side::After])?;
        let children = ["Service", "PodDisruptionBudget", "StatefulSet"];
        let kinds = [
            "statefulsets",
            "services",
            "poddisruptionbudgets",
            "persistentvolumeclaims",
            "pods",
        ];
        Some(match chance.below(66) {
            0 | 1 => Fault::Kill(member),
            2 => Fault::Stop(member, short),
            3 => Fault::Part(member, short),
            4 => Fault::Deafen(member, other, short),
            5..=7 => Fault::Wipe(member),
            8 => Fault::Damage(member),
            9 => Fault::Fill(member, long),
            10 => Fault::Block(member, short),
            11 => Fault::Exchange(member, short),
            12 => Fault::Reattach(member),
            13 => Fault::HoldClaim(member, long),
            14 => Fault::DeletePod(member),
            15 => Fault::Evict(member),
            16 => Fault::LoseNode(member, long),
            17 => Fault::CutKubelet(member, long),
            18 => Fault::Late(member, long),
            19 => Fault::Unschedulable(member, long),
            20 => Fault::Crash(1 + chance.below(40)),
            21..=28 => Fault::CrashAround(step, side),
            29 => Fault::Overtake(long),
            30..=32 => Fault::OvertakeAt(step, short),
            33 => Fault::Blind(short),
            34 => Fault::CutWatches,
            35 => Fault::Refuse(1 + u32::try_from(chance.below(6)).unwrap_or(0)),
            36 => Fault::LoseWrite,
            37 => Fault::Duplicate,
            38 => Fault::LoseChange,
            39 => Fault::Slow(short),
            40 => Fault::DeleteChild(chance.pick(&children)?),
            41 => Fault::LoseStatus,
            57 => Fault::Meddle(*chance.pick(&MEDDLING)?),
            42 => Fault::Nameless(short),
            43 => Fault::Pause(long),
            44 => Fault::Hibernate(long),
            45..=47 => Fault::Befall(*chance.pick(&MISHAPS)?, short),
            50 => Fault::Isolate(some(members, chance), long),
            48 | 49 => Fault::GiveUp(member),
            51 | 52 => Fault::DieYoung(member, usize::try_from(chance.below(5)).unwrap_or(0)),
            53 | 54 => Fault::Forbid(
                chance.pick(&kinds)?,
                *chance.pick(&[403, 422])?,
                1 + u32::try_from(chance.below(12)).unwrap_or(0),
            ),
            60..=62 => Fault::ChangePods(chance.below(4)),
            63 => Fault::Upgrade(if chance.below(3) == 0 { 2 } else { 1 }),
            64 => Fault::BadImage(MISREADING_REPOSITORY, long),
            // The first one touches no member, the second one stops one.
            65 => Fault::BadImage(chance.pick(&MISLABELLED)?, long),
            55 => Fault::Clone(member, other),
            56 => Fault::Swap(member, other),
            _ => match chance.pick(&self.sizes) {
                Some(size) => Fault::Resize(*size),
                None => Fault::Kill(member),
            },
        })
    }
}

/// All of these, or some.
fn some(members: &[String], chance: &mut Chance) -> Vec<String> {
    let mut some = members.to_vec();
    if chance.one_in(2) {
        some.retain(|_| !chance.one_in(3));
    }
    some
}

/// What somebody does to a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meddling {
    /// Takes the ID of the cluster away.
    NoCluster,
    /// Names another cluster.
    OtherCluster,
    /// Takes away what is known of the members.
    NoMembers,
    /// Names an incarnation that there never was.
    OtherIncarnation,
}

/// All of it.
const MEDDLING: [Meddling; 4] = [
    Meddling::NoCluster,
    Meddling::OtherCluster,
    Meddling::NoMembers,
    Meddling::OtherIncarnation,
];

impl Fault {
    /// Its kind in one word.
    pub fn kind(&self) -> String {
        let text = format!("{self:?}");
        let end = text.find(|letter: char| !letter.is_alphanumeric());
        text[..end.unwrap_or(text.len())].to_owned()
    }

    /// How long it lasts; at once over, or once somebody has come by, takes no time here.
    pub(crate) fn lasts(&self) -> Duration {
        match self {
            Self::Stop(_, time)
            | Self::Part(_, time)
            | Self::Deafen(.., time)
            | Self::Fill(_, time)
            | Self::Block(_, time)
            | Self::Exchange(_, time)
            | Self::HoldClaim(_, time)
            | Self::LoseNode(_, time)
            | Self::CutKubelet(_, time)
            | Self::Late(_, time)
            | Self::Unschedulable(_, time)
            | Self::Overtake(time)
            | Self::OvertakeAt(_, time)
            | Self::Blind(time)
            | Self::Befall(_, time)
            | Self::Isolate(_, time)
            | Self::Slow(time)
            | Self::Nameless(time)
            | Self::Hibernate(time)
            | Self::BadImage(_, time)
            | Self::Pause(time) => *time,
            _ => Duration::ZERO,
        }
    }

    /// Whether little follows from it.
    fn brings_little(&self) -> bool {
        matches!(
            self,
            Self::Kill(_)
                | Self::Stop(..)
                | Self::Part(..)
                | Self::Deafen(..)
                | Self::Late(..)
                | Self::Slow(_)
                | Self::Blind(_)
                | Self::CutWatches
                | Self::Refuse(_)
                | Self::LoseWrite
                | Self::Duplicate
                | Self::LoseChange
                | Self::Crash(_)
                | Self::Isolate(..)
        )
    }

    /// Whether it takes the data of a member.
    pub(crate) fn takes_data(&self, is_fleeting: bool) -> bool {
        match self {
            Self::Wipe(_) | Self::Damage(_) | Self::Exchange(..) | Self::Clone(..) | Self::Swap(..) => true,
            Self::DeletePod(_) => is_fleeting,
            _ => false,
        }
    }
}
