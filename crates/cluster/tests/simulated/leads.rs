//! Refusals that chance alone comes by too seldom: a life is led to one of them on purpose, by what goes wrong and by what
//! people do, and in the end its person does what the refusal asks for.

use etcd_operator_api::names::ANNOTATION_ADOPT;
use etcd_operator_etcd::membership::Role;
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_etcd::url::PeerUrl;
use etcd_operator_testkit::chance::Chance;
use etcd_operator_testkit::etcd::{CallFault, Calls, Content};
use etcd_operator_testkit::simulation::{NAMESPACE, OPERATOR, Place, Simulation};
use serde_json::{Value, json};

use crate::settle::decide;
use crate::weather::{Ending, NAME};
use crate::{MINUTE, SECOND, coverage};

/// So many lives have one that is led to a refusal.
const ONE_IN: u64 = 3;

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
}

const ALL: [Lead; 15] = [
    Lead::AskForLess,
    Lead::WriteUnseen,
    Lead::AddStranger,
    Lead::RegretUnstarted,
    Lead::RegretLearner,
    Lead::DeafenLearner,
    Lead::HideVoter,
    Lead::EmptyAgain,
    Lead::HideVoters,
    Lead::HideNewVoter,
    Lead::EvictLearner,
    Lead::AdoptTooFew,
    Lead::AdoptCopy,
    Lead::AdoptEarly,
    Lead::KeepEmpty,
];

impl Lead {
    /// For some lives one of those that do not keep the operator from the place at which it is to die.
    pub fn draw(chance: &mut Chance, place: Place) -> Option<Self> {
        let suiting: Vec<Self> = ALL.into_iter().filter(|lead| lead.suits(place)).collect();
        let lead = chance.pick(&suiting).copied();
        lead.filter(|_| chance.one_in(ONE_IN))
    }

    fn suits(self, place: Place) -> bool {
        match self.ending() {
            // Whoever starts over was severed at first.
            None => place.flow != "StartOver",
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
        let others = [
            Self::WriteUnseen,
            Self::RegretUnstarted,
            Self::RegretLearner,
            Self::HideVoter,
            Self::EmptyAgain,
            Self::HideVoters,
        ];
        self.ending().is_some() || others.contains(&self)
    }

    /// Whether the data must outlive the pods.
    pub fn needs_volumes(self) -> bool {
        self.ending().is_some() || self == Self::WriteUnseen
    }

    /// Whether somebody must have no vote at first.
    pub fn needs_learners(self) -> bool {
        let others = [Self::AskForLess, Self::WriteUnseen, Self::HideVoter];
        self.ending().is_none() && !others.contains(&self)
    }

    /// What happens before the cluster has formed.
    pub async fn before_it_forms(self, sim: &Simulation, size: u8) {
        match self {
            Self::AskForLess => ask_for_less(sim, size).await,
            Self::WriteUnseen => write_unseen(sim, size).await,
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
            Self::EmptyAgain => {
                empty_again(sim).await;
                return size;
            }
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

/// The member of the first place.
fn first() -> String {
    format!("{NAME}-0")
}

/// Waits until the operator says so.
async fn said(sim: &Simulation, refusal: &str) {
    let words = coverage::words(refusal);
    let says = |cluster: &Value| coverage::says(&cluster["status"], words);
    sim.until(MINUTE, |sim| sim.look(NAME, says) == Some(true)).await;
}

/// Whoever is led goes on alone.
fn let_go(sim: &Simulation) {
    sim.etcds().mend_all();
    sim.etcds().clear_faults();
}

async fn ask_for_less(sim: &Simulation, size: u8) {
    sim.machine().set_too_large(NAMESPACE, &first(), true);
    sim.until(MINUTE, |sim| sim.members(NAME).len() == usize::from(size))
        .await;
    sim.edit(NAME, |spec| {
        spec["pod"] = json!({"resources": {"requests": {"cpu": "100m"}}});
    });
    said(sim, "spec changed before the start").await;
    sim.machine().set_too_large(NAMESPACE, &first(), false);
}

async fn write_unseen(sim: &Simulation, size: u8) {
    let blind = Calls {
        caller: Some(OPERATOR.to_owned()),
        ..Calls::of("Connect")
    };
    sim.etcds().fault(blind, CallFault::LoseRequest, u32::MAX);
    let all = (usize::from(size), usize::from(size));
    sim.until(MINUTE, |sim| sim.voters(NAME) == all).await;
    let writers = sim.write(NAME, 2, SECOND);
    tokio::time::sleep(10 * SECOND).await;
    drop(writers);
    // What is lost now a person gives up later.
    sim.ledger().forgive_losses();
    for number in 0..=size / 2 {
        sim.wipe(&format!("{NAME}-{number}"));
    }
    sim.etcds().clear_faults();
    said(sim, "clients may have written").await;
    decide(sim).await;
}

/// No learner gets its vote before it is let go: etcd says that it has not caught up.
fn hold_learners_back(sim: &Simulation) {
    let refusal = CallFault::Refuse(Rejection::LearnerNotReady);
    sim.etcds().fault(Calls::of("MemberPromote"), refusal, u32::MAX);
}

/// The user wants two members more, and the first of them is added and gets no vote.
async fn grow(sim: &Simulation, size: u8) -> Option<String> {
    hold_learners_back(sim);
    sim.edit(NAME, |spec| spec["size"] = json!(size + 2));
    sim.until(MINUTE, |sim| learner(sim).is_some()).await;
    learner(sim).map(|(name, _)| name)
}

/// The same, once it does its part.
async fn grow_until_it_is_up(sim: &Simulation, size: u8) -> Option<String> {
    let learner = grow(sim, size).await?;
    sim.until(MINUTE, is_learner_up).await.then_some(learner)
}

/// The member without a vote, and whether it does its part.
fn learner(sim: &Simulation) -> Option<(String, bool)> {
    let end = format!(".{NAME}.{NAMESPACE}.svc");
    sim.etcds().truth(|truth| {
        truth.clusters().into_iter().find_map(|id| {
            let members = truth.members(id).into_values();
            let mut learners = members.filter(|member| member.role == Role::Learner);
            learners.find_map(|learner| {
                let mut hosts = learner.peer_urls.iter().map(PeerUrl::host);
                let name = hosts.find_map(|host| host.strip_suffix(&end))?.to_owned();
                Some((name, truth.up_since(id, learner.id).is_some()))
            })
        })
    })
}

fn is_learner_up(sim: &Simulation) -> bool {
    learner(sim).is_some_and(|(_, is_up)| is_up)
}

/// Nobody who is not well any more leaves before the others can decide, and nobody comes before the last one is finished.
async fn regret(sim: &Simulation, size: u8, is_started: bool) {
    let Some(learner) = grow(sim, size).await else {
        return let_go(sim);
    };
    if is_started {
        sim.until(MINUTE, is_learner_up).await;
    } else {
        sim.etcds().part(OPERATOR, &learner);
    }
    sim.wipe(&format!("{NAME}-1"));
    // It has reported by then, and what was begun goes first.
    tokio::time::sleep(10 * SECOND).await;
    sim.edit(NAME, |spec| spec["size"] = json!(size));
    let is_out = |sim: &Simulation| sim.voters(NAME).1 == usize::from(size) - 1;
    sim.until(MINUTE, is_out).await;
    sim.etcds().part(OPERATOR, &first());
    let refusal = if is_started {
        "a learner is unfinished"
    } else {
        "a member has not started"
    };
    said(sim, refusal).await;
    let_go(sim);
}

async fn hide_voter(sim: &Simulation) {
    sim.etcds().part(OPERATOR, &first());
    sim.wipe(&format!("{NAME}-1"));
    said(sim, "too few would be left").await;
    let_go(sim);
}

async fn empty_again(sim: &Simulation) {
    hold_learners_back(sim);
    let member = format!("{NAME}-1");
    sim.wipe(&member);
    for _ in 0..2 {
        if !sim.until(MINUTE, is_learner_up).await {
            return let_go(sim);
        }
        sim.wipe(&member);
    }
    said(sim, "too many replacements").await;
    let_go(sim);
    // Whoever has found out why changes something.
    sim.edit(NAME, |spec| spec["recovery"] = json!({"replaceAfter": "4m"}));
}

async fn deafen_learner(sim: &Simulation, size: u8) {
    if let Some(learner) = grow_until_it_is_up(sim, size).await {
        for number in 0..size {
            sim.etcds().cut(&format!("{NAME}-{number}"), &learner);
        }
        said(sim, "no vote: it has not all data").await;
    }
    let_go(sim);
}

async fn hide_voters(sim: &Simulation, size: u8) {
    if grow_until_it_is_up(sim, size).await.is_some() {
        for number in 0..=size / 2 {
            sim.etcds().part(OPERATOR, &format!("{NAME}-{number}"));
        }
        said(sim, "no vote: too few voters").await;
    }
    let_go(sim);
}

async fn hide_new_voter(sim: &Simulation, size: u8) {
    sim.edit(NAME, |spec| spec["size"] = json!(size + 2));
    sim.until(MINUTE, |sim| learner(sim).is_some()).await;
    let Some((new, _)) = learner(sim) else { return };
    let votes = |sim: &Simulation| sim.voters(NAME).1 == usize::from(size) + 1;
    if sim.until(MINUTE, votes).await {
        sim.etcds().part(OPERATOR, &new);
        said(sim, "the new voter does not answer").await;
    }
    let_go(sim);
}

async fn evict_learner(sim: &Simulation, size: u8) {
    if let Some(learner) = grow_until_it_is_up(sim, size).await {
        sim.machine().set_too_large(NAMESPACE, &learner, true);
        sim.fake().delete_object("v1", "Pod", NAMESPACE, &learner);
        said(sim, "a learner in the way").await;
        sim.machine().set_too_large(NAMESPACE, &learner, false);
    }
    let_go(sim);
}
