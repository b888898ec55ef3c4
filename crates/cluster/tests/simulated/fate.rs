//! What a seed holds in store for a life: how its cluster is asked for, where its operator dies, to which refusal it is led, and
//! what a person does in the end.

use etcd_operator_etcd::policy::newest;
use etcd_operator_etcd::version::Minor;
use etcd_operator_testkit::chance::Chance;
use etcd_operator_testkit::simulation::{Fault, Place, Simulation};
use serde_json::{Value, json};

use crate::SECOND;
use crate::leads::Lead;
use crate::weather::{NAME, status};

/// How many faults a life has at least that is led to a refusal, beside what leads it there.
const FAULTS_IF_LED: u32 = 2;

/// When things begin to go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Once the cluster is whole.
    Calm,
    /// At once.
    Rough,
    /// At once, and the members cannot agree on anything for a while.
    Severed,
}

/// What a person does in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Nothing,
    /// Puts it to sleep and wakes it.
    Sleep,
    /// Takes the operator away, and the power of every member.
    Alone,
    /// Deletes it, makes it again, and has what was kept taken over.
    Adopt,
    /// Deletes it, makes it again, and gives up what was kept.
    Discard,
    /// Loses a node for good.
    Bury,
    /// Loses the data of most members, or of all.
    Ruin,
}

impl Ending {
    /// How much happens in it, most of the times, with so many members. Where it is less more goes wrong afterwards.
    pub fn events(self, size: u8) -> u64 {
        let (few, each) = match self {
            Self::Nothing | Self::Ruin => (0, 0),
            Self::Bury if size < 3 => (0, 0),
            Self::Bury => (90, 0),
            Self::Alone => (45, 25),
            Self::Sleep => (70, 55),
            Self::Adopt => (80, 50),
            Self::Discard => (110, 65),
        };
        few + each * u64::from(size.saturating_sub(1))
    }
}

/// How many lives of a few hundred are led to a place: more where many that are led there do not get there.
fn lives_led_to(place: &Place) -> usize {
    match (place.flow, place.call) {
        ("Remove", "MoveLeader") => 10,
        ("Join", "WriteStatus") | ("Resume", "Permit Resume") => 8,
        ("Replace", "MoveLeader") => 7,
        ("Bootstrap", "Permit Bootstrap")
        | ("Join", "MemberPromote")
        | ("Remove", "MemberRemove")
        | ("Join" | "Replace", "DeletePod")
        | ("Resume", _) => 6,
        ("Bootstrap" | "Join", "TakeOver")
        | ("Replace", "DeleteClaim" | "ForceDeletePod")
        | ("Remove" | "Replace", "WriteStatus")
        | ("StartOver", _) => 5,
        // Its own lives are long, and other lives come by as well.
        ("Discard", "DeleteClaim" | "DeletePod") => 3,
        ("Bootstrap", "WriteStatus") | ("Adopt", "Permit Adopt") => 2,
        _ => 4,
    }
}

/// What a seed holds in store.
#[derive(Clone, Debug)]
pub struct Fate {
    pub version: Minor,
    pub size: u8,
    pub is_fleeting: bool,
    pub opening: Opening,
    pub ending: Ending,
    pub faults: u32,
    pub writes_early: bool,
    /// Where its operator dies.
    pub place: Place,
    /// To which refusal it is led on purpose.
    pub lead: Option<Lead>,
}

impl Fate {
    pub fn draw(chance: &mut Chance) -> Self {
        use Minor::{V3_2, V3_3, V3_4, V3_5, V3_6, V3_7};
        let versions = [V3_6, V3_6, V3_6, V3_7, V3_7, V3_5, V3_5, V3_4, V3_3, V3_2];
        let openings = [
            Opening::Calm,
            Opening::Calm,
            Opening::Rough,
            Opening::Rough,
            Opening::Severed,
        ];
        let version = *chance.pick(&versions).expect("there are some");
        let size = *chance.pick(&[1, 3, 3, 3, 3, 3, 3, 5]).expect("there are some");
        let is_fleeting = chance.one_in(10);
        // Volumes that were kept are met on the way to places and refusals.
        let mut ending = match chance.below(32) {
            0..=2 => Ending::Sleep,
            3..=5 => Ending::Alone,
            6..=8 => Ending::Bury,
            9..=12 => Ending::Ruin,
            _ => Ending::Nothing,
        };
        if is_fleeting {
            ending = Ending::Nothing;
        }
        let places = Place::all();
        let places: Vec<&Place> = places
            .iter()
            .flat_map(|place| vec![place; lives_led_to(place)])
            .collect();
        let place = **chance.pick(&places).expect("there are some");
        Self {
            version,
            size,
            is_fleeting,
            opening: *chance.pick(&openings).expect("there are some"),
            ending,
            faults: 2 + u32::from(chance.one_in(2)),
            writes_early: chance.one_in(2),
            place,
            lead: None,
        }
    }

    /// The same with what leads its operator to where it dies, where it would seldom come by.
    pub fn led_to_its_place(mut self, chance: &mut Chance) -> Self {
        match self.place.flow {
            "StartOver" => self.opening = Opening::Severed,
            "Adopt" => self.ending = Ending::Adopt,
            "Discard" => self.ending = Ending::Discard,
            "Join" | "Remove" | "Replace" | "Resume" => self.opening = Opening::Calm,
            _ => {}
        }
        let is_kept = ["Adopt", "Discard", "Resume"].contains(&self.place.flow);
        if is_kept || self.place.call == "DeleteClaim" {
            self.is_fleeting = false;
        }
        if ["StartOver", "Remove", "Replace", "Resume"].contains(&self.place.flow) {
            self.size = self.size.max(3);
        }
        if ["Join", "Remove"].contains(&self.place.flow) {
            // Enough happens on the way there.
            self.ending = Ending::Nothing;
        }
        if ["Adopt", "Discard"].contains(&self.place.flow) {
            // What is asked about one volume is asked about each.
            self.size = *chance.pick(&[1, 1, 1, 1, 3]).expect("there are some");
        }
        if ["MemberPromote", "MoveLeader"].contains(&self.place.call) {
            self.version = self.version.max(Minor::V3_4);
        }
        if self.place.call == "ForceDeletePod" {
            self.is_fleeting = false;
            self.ending = Ending::Bury;
        }
        if (self.place.flow, self.place.call) == ("Join", "DeletePod") {
            // A member that lost its data in the pod in which the cluster formed.
            self.is_fleeting = false;
            self.size = self.size.max(3);
            self.version = self.version.max(Minor::V3_5);
        }
        self
    }

    /// The same with what leads it to a refusal, where it is to be led to one.
    pub fn led_to_a_refusal(mut self, seed: u64, chance: &mut Chance) -> Self {
        let is_free = self.ending == Ending::Nothing && self.place.call != "DeleteClaim";
        let drawn = Lead::draw(chance, self.place);
        let in_turn = || Lead::in_turn(seed, self.place).filter(|_| is_free);
        let Some(lead) = drawn.or_else(in_turn) else {
            return self;
        };
        self.lead = Some(lead);
        if lead.needs_three() {
            self.size = 3;
        } else if lead == Lead::DeafenLearner {
            // Beside a single voter it shows soonest whether anybody looks before another one votes.
            self.size = *chance.pick(&[1, 3]).expect("there are some");
        } else {
            self.size = self.size.min(3);
        }
        self.is_fleeting &= !lead.needs_volumes();
        self.is_fleeting |= lead.is_fleeting();
        if let Some(ending) = lead.ending() {
            self.ending = ending;
            if !lead.needs_three() {
                self.size = *chance.pick(&[1, 1, 1, 1, 3]).expect("there are some");
            }
        } else {
            self.opening = Opening::Calm;
            let ends_there =
                matches!(self.ending, Ending::Adopt | Ending::Discard) || self.place.call == "ForceDeletePod";
            if !ends_there {
                // Enough happens on the way there.
                self.ending = Ending::Nothing;
            }
        }
        if lead.needs_learners() {
            self.version = self.version.max(Minor::V3_4);
        }
        self.faults = FAULTS_IF_LED;
        self
    }

    /// What happens first, once all is well.
    pub fn first(&self, sim: &Simulation) -> Option<Fault> {
        let member = || status(sim)["leader"].as_str().map(str::to_owned);
        match (self.place.flow, self.place.call) {
            ("Join", "DeletePod") | ("Replace", "WriteStatus" | "MemberRemove") => {
                Some(Fault::Wipe(format!("{NAME}-1")))
            }
            ("Join", _) => Some(Fault::Resize(self.size + 2)),
            ("Remove", _) => Some(Fault::Resize(1)),
            ("Replace", "MoveLeader") => member().map(Fault::GiveUp),
            // What is empty can stay.
            ("Replace", "DeleteClaim") => Some(Fault::Exchange(format!("{NAME}-1"), 5 * SECOND)),
            ("Replace", "DeletePod") => Some(Fault::GiveUp(format!("{NAME}-1"))),
            ("Resume", _) => Some(Fault::Reattach(format!("{NAME}-1"))),
            _ => None,
        }
    }

    pub fn spec(&self) -> Value {
        let mut spec = json!({"size": self.size, "version": newest(self.version).to_string()});
        if !self.is_fleeting {
            spec["storage"] = json!({"size": "1Gi"});
        }
        spec
    }
}
