//! Refusals that chance alone comes by too seldom: a life is led to one of them on purpose, by what goes wrong and by what
//! people do, and in the end its person does what the refusal asks for.

mod ways;

use etcd_operator_api::names::{ANNOTATION_ADOPT, ANNOTATION_REPLACE};
use etcd_operator_testkit::chance::Chance;
use etcd_operator_testkit::etcd::Content;
use etcd_operator_testkit::simulation::{Fault, NAMESPACE, Place, Simulation};

use crate::SECOND;
use crate::fate::Ending;
use crate::settle::{decide, settle};
use crate::weather::NAME;
use ways::{
    ask_for_less, deafen_learner, empty_again, evict_learner, first, hide_lower, hide_new_voter, hide_voter,
    hide_voters, lack_lower, regret, replace_before_joins, said, write_unseen,
};

/// Of a hundred lives so many are led to a refusal.
const OF_HUNDRED: u64 = 36;

/// What leads to a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lead {
    /// A pod is too large for every node, and the user asks for less before anything was started.
    AskForLess,
    /// Clients write before the operator has seen anybody, and most members lose their data.
    WriteUnseen,
    /// Somebody adds a member where none of this cluster can be.
    AddStranger,
    /// The user takes back a wish for more members while the first one has not started, and a voter loses its data.
    RegretUnstarted,
    /// The same while the first one is a learner.
    RegretLearner,
    /// A learner hears nothing of the others.
    DeafenLearner,
    /// The operator does not reach a voter when another one has lost its data.
    HideVoter,
    /// A copy of another member's volume lies in the place of a voter's own.
    CloneVoter,
    /// The operator does not reach the first voter when higher ones are to be taken out.
    HideLower,
    /// A member loses its data again and again before it has its vote back.
    EmptyAgain,
    /// The operator does not reach most voters when a learner could have its vote.
    HideVoters,
    /// The operator does not reach a member that has just got its vote.
    HideNewVoter,
    /// The pod of a learner finds no node any more, and another one waits.
    EvictLearner,
    /// Consent is given to the use of too few of the volumes that were kept.
    AdoptTooFew,
    /// Consent is given to the use of a copy of a volume that was kept.
    AdoptCopy,
    /// Consent is given before there is anybody to report what was kept.
    AdoptEarly,
    /// A volume that was kept is empty.
    KeepEmpty,
    /// Somebody asks for a member to be replaced that is none.
    NameNobody,
    /// Clients write before the operator has seen anybody, and most members lose their data, which no volume keeps.
    WriteUnkept,
    /// The pod of a member finds no node, and the user asks for fewer.
    LackLower,
    /// Pods of new members find no node, and somebody asks for one to be replaced that is well.
    ReplaceBeforeJoins,
}

/// What is led to by lives that would be led nowhere, each of them in turn.
const IN_TURN: [Lead; 4] = [
    Lead::NameNobody,
    Lead::WriteUnkept,
    Lead::LackLower,
    Lead::ReplaceBeforeJoins,
];
/// One life in so many is led there, of those that would be led nowhere.
const TURNS: u64 = 4;

/// How many lives of a hundred or two are led to each: more where many do not get there, or few places suit, and fewer where
/// so much happens on the way that one does for two.
const ALL: [(Lead, usize); 17] = [
    (Lead::AskForLess, 2),
    (Lead::WriteUnseen, 4),
    (Lead::AddStranger, 2),
    (Lead::RegretUnstarted, 4),
    (Lead::RegretLearner, 4),
    (Lead::DeafenLearner, 2),
    (Lead::HideVoter, 2),
    (Lead::CloneVoter, 8),
    (Lead::HideLower, 8),
    (Lead::EmptyAgain, 2),
    (Lead::HideVoters, 3),
    (Lead::HideNewVoter, 3),
    (Lead::EvictLearner, 2),
    (Lead::AdoptTooFew, 1),
    (Lead::AdoptCopy, 1),
    (Lead::AdoptEarly, 2),
    (Lead::KeepEmpty, 2),
];

impl Lead {
    /// For some lives one of those that do not keep the operator from the place at which it is to die.
    pub fn draw(chance: &mut Chance, place: Place) -> Option<Self> {
        let suiting = ALL.into_iter().filter(|(lead, _)| lead.suits(place));
        let suiting: Vec<Self> = suiting.flat_map(|(lead, often)| vec![lead; often]).collect();
        let lead = chance.pick(&suiting).copied();
        lead.filter(|_| chance.below(100) < OF_HUNDRED)
    }

    /// For a life that is led nowhere, where it is its turn.
    pub fn in_turn(seed: u64, place: Place) -> Option<Self> {
        let turn = usize::try_from(seed / TURNS).ok()?;
        let is_due = seed % TURNS == TURNS - 1 && !["StartOver", "Adopt", "Discard"].contains(&place.flow);
        is_due.then(|| IN_TURN[turn % IN_TURN.len()])
    }

    fn suits(self, place: Place) -> bool {
        // What is asked about one volume is asked about each.
        let is_long = (self.needs_three() || self.grows()) && ["Adopt", "Discard"].contains(&place.flow);
        match self.ending() {
            None if is_long => false,
            // Whoever starts over was severed at first.
            None if self != Self::HideLower => place.flow != "StartOver",
            // Nobody is left then whose place another one could take.
            None => ["Bootstrap", "Join"].contains(&place.flow),
            Some(_) if place.call == "ForceDeletePod" => false,
            Some(ending) => match place.flow {
                "Adopt" => ending == Ending::Adopt,
                "Discard" => ending == Ending::Discard,
                _ => true,
            },
        }
    }

    /// What a person does in the end on the way there; none where it is met before.
    pub fn ending(self) -> Option<Ending> {
        match self {
            Self::AdoptTooFew | Self::AdoptCopy | Self::AdoptEarly => Some(Ending::Adopt),
            Self::KeepEmpty => Some(Ending::Discard),
            _ => None,
        }
    }

    /// Whether fewer members, or single ones, never come there.
    pub fn needs_three(self) -> bool {
        let all = [
            Self::WriteUnseen,
            Self::RegretUnstarted,
            Self::RegretLearner,
            Self::HideVoter,
            Self::CloneVoter,
            Self::HideLower,
            Self::EmptyAgain,
            Self::HideVoters,
            Self::AdoptTooFew,
            Self::AdoptCopy,
            Self::WriteUnkept,
            Self::LackLower,
            Self::ReplaceBeforeJoins,
        ];
        all.contains(&self)
    }

    /// Whether the data must go with the pods.
    pub fn is_fleeting(self) -> bool {
        self == Self::WriteUnkept
    }

    /// Whether there are more members afterwards.
    fn grows(self) -> bool {
        matches!(
            self,
            Self::DeafenLearner
                | Self::HideVoters
                | Self::HideNewVoter
                | Self::EvictLearner
                | Self::ReplaceBeforeJoins
        )
    }

    /// Whether the data must outlive the pods.
    pub fn needs_volumes(self) -> bool {
        self.ending().is_some()
            || matches!(
                self,
                Self::WriteUnseen | Self::CloneVoter | Self::LackLower | Self::ReplaceBeforeJoins
            )
    }

    /// Whether somebody must have no vote at first.
    pub fn needs_learners(self) -> bool {
        let others = [
            Self::AskForLess,
            Self::WriteUnseen,
            Self::HideVoter,
            Self::CloneVoter,
            Self::HideLower,
            Self::NameNobody,
            Self::WriteUnkept,
            Self::LackLower,
            Self::ReplaceBeforeJoins,
        ];
        self.ending().is_none() && !others.contains(&self)
    }

    /// What happens before the cluster has formed.
    pub async fn before_it_forms(self, sim: &Simulation, size: u8) {
        match self {
            Self::AskForLess => ask_for_less(sim, size).await,
            Self::WriteUnseen => {
                write_unseen(sim, size).await;
                said(sim, "clients may have written").await;
                decide(sim).await;
            }
            Self::WriteUnkept => {
                write_unseen(sim, size).await;
                said(sim, "data that nobody has read").await;
                settle(sim).await;
            }
            _ => {}
        }
    }

    /// What happens once all is well. How many members there should be then.
    pub async fn amid(self, sim: &Simulation, size: u8) -> u8 {
        match self {
            Self::AddStranger => {
                // etcd takes nobody in before its members have been connected for a while.
                tokio::time::sleep(10 * SECOND).await;
                sim.add_by_hand(NAME, "stranger.example").await;
                said(sim, "an unknown member").await;
                return size;
            }
            Self::RegretUnstarted | Self::RegretLearner => {
                regret(sim, size, self == Self::RegretLearner).await;
                return size;
            }
            Self::HideVoter => {
                hide_voter(sim).await;
                return size;
            }
            Self::CloneVoter => {
                sim.inject(NAME, &Fault::Clone(format!("{NAME}-1"), first()));
                said(sim, "another member's data").await;
                settle(sim).await;
                return size;
            }
            Self::HideLower => {
                hide_lower(sim).await;
                return 1;
            }
            Self::EmptyAgain => {
                empty_again(sim).await;
                return size;
            }
            Self::NameNobody => {
                sim.annotate(NAME, ANNOTATION_REPLACE, "1f");
                said(sim, "nobody to replace").await;
                sim.annotate(NAME, ANNOTATION_REPLACE, "");
                return size;
            }
            Self::LackLower => {
                lack_lower(sim, size).await;
                return size - 1;
            }
            Self::ReplaceBeforeJoins => replace_before_joins(sim, size).await,
            Self::DeafenLearner => deafen_learner(sim, size).await,
            Self::HideVoters => hide_voters(sim, size).await,
            Self::HideNewVoter => hide_new_voter(sim, size).await,
            Self::EvictLearner => evict_learner(sim, size).await,
            _ => return size,
        }
        size + 2
    }

    /// A copy of a volume, before its cluster is deleted.
    pub fn copies(self, sim: &Simulation) -> Option<Content> {
        (self == Self::AdoptCopy).then(|| sim.snapshot(&first()))?
    }

    /// What becomes of a volume that was kept.
    pub fn keeps(self, sim: &Simulation, copy: Option<Content>) {
        if let Some(copy) = copy {
            sim.put_claim_from_snapshot(&first(), copy);
        }
        let disk = sim.machine().disk(NAMESPACE, &format!("data-{}", first()));
        if let Some(disk) = disk.filter(|_| self == Self::KeepEmpty) {
            sim.etcds().wipe(disk);
        }
    }

    /// The consent that a person gives first, which is not enough or comes too early.
    pub async fn consents(self, sim: &Simulation) {
        let refusal = match self {
            Self::AdoptTooFew => "kept volumes are too few",
            Self::AdoptCopy => "a copy of a kept volume",
            _ => return,
        };
        let claim = format!("data-{}", first());
        let claim = sim
            .fake()
            .get_object("v1", "PersistentVolumeClaim", NAMESPACE, &claim);
        let uid = claim.as_ref().and_then(|claim| claim["metadata"]["uid"].as_str());
        sim.annotate(NAME, ANNOTATION_ADOPT, uid.unwrap_or_default());
        said(sim, refusal).await;
    }
}
