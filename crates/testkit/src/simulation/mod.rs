//! A whole world for an operator under test: API server, machines, members, clients, and what goes wrong with them, from
//! one seed. Stories are told through it; what it finds is shown with the seed and the record of what happened.

mod disturb;
mod doom;
mod faults;
mod inject;
mod noted;
mod seat;
mod story;
mod tally;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use etcd_operator_api::crd;
use futures::future::BoxFuture;
use tokio::task::AbortHandle;

pub use self::doom::Place;
pub use self::faults::{Fault, Meddling, Mishap, Schedule};
pub use self::seat::{OPERATOR, Seat};
pub use self::tally::{FLOWS, RESTORE_FLOWS, RESTORE_STEPS, STEPS, Tally, calls_of};

use self::seat::{ApiFaults, Readers};
use crate::Fake;
use crate::chance::Chance;
use crate::etcd::Etcds;
use crate::fake::{Beginning, EPOCH};
use crate::gate::{Ambush, Gate, Side};
use crate::ledger::Ledger;
use crate::machine::Machine;
use crate::timeline::Timeline;

/// The namespace in which stories play.
pub const NAMESPACE: &str = "default";

/// Makes an operator for a seat. It runs until it is killed.
pub type Build = Arc<dyn Fn(Seat) -> BoxFuture<'static, ()> + Send + Sync>;

/// The API server as every world finds it: with the operator's own kinds, whose rules are read once.
static SERVER: LazyLock<Beginning> = LazyLock::new(|| {
    let epoch: jiff::Timestamp = EPOCH.parse().expect("the epoch is a timestamp");
    let fake = Fake::with_clock(Arc::new(move || epoch));
    // No operator reads it.
    fake.leave_owners_unnamed();
    for definition in crd::all() {
        fake.register(&definition);
    }
    Beginning::of(&fake)
});

/// One world. Clones share it.
#[derive(Clone)]
pub struct Simulation(Arc<Inner>);

struct Inner {
    seed: u64,
    fake: Fake,
    etcds: Etcds,
    machine: Machine,
    ledger: Ledger,
    timeline: Timeline,
    faults: ApiFaults,
    tally: Tally,
    readers: Readers,
    state: Mutex<State>,
}

struct State {
    chance: Chance,
    build: Option<Build>,
    operators: Vec<(Gate, AbortHandle)>,
    starts: u64,
    /// How often all that went wrong was ended.
    healed: u64,
    /// Where operators die, one place after another.
    dooms: VecDeque<Place>,
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("seed", &self.0.seed)
            .finish_non_exhaustive()
    }
}

/// Tells a story in a world of this seed, on a clock of its own that never waits.
pub fn run<F, Fut, T>(seed: u64, story: F) -> T
where
    F: FnOnce(Simulation) -> Fut,
    Fut: Future<Output = T>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without IO can always be made");
    runtime.block_on(async { story(Simulation::new(seed)).await })
}

impl Simulation {
    /// A world with five nodes, of this seed.
    pub fn new(seed: u64) -> Self {
        Self::with_nodes(seed, 5)
    }

    /// The same with so many nodes. Must be made inside a tokio runtime whose clock is paused.
    pub fn with_nodes(seed: u64, nodes: u8) -> Self {
        let mut chance = Chance::new(seed);
        let timeline = Timeline::new();
        let fake = SERVER.begin();
        let etcds = Etcds::with_timeline(chance.bits(), timeline.clone());
        let machine = Machine::new(&fake, &etcds, nodes, chance.bits());
        let ledger = Ledger::new(&etcds, &machine);
        Self(Arc::new(Inner {
            seed,
            fake,
            etcds,
            machine,
            ledger,
            timeline,
            faults: ApiFaults::default(),
            tally: Tally::default(),
            readers: Readers::default(),
            state: Mutex::new(State {
                chance,
                build: None,
                operators: Vec::new(),
                starts: 0,
                healed: 0,
                dooms: VecDeque::new(),
            }),
        }))
    }

    fn with<T>(&self, run: impl FnOnce(&mut State) -> T) -> T {
        run(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The seed of this world.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// The API server.
    pub fn fake(&self) -> &Fake {
        &self.0.fake
    }

    /// The members.
    pub fn etcds(&self) -> &Etcds {
        &self.0.etcds
    }

    /// The machines.
    pub fn machine(&self) -> &Machine {
        &self.0.machine
    }

    /// What clients were promised, and what was broken.
    pub fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }

    /// The record of what happened.
    pub fn timeline(&self) -> &Timeline {
        &self.0.timeline
    }

    /// Shows somebody every status of an `EtcdCluster` that an operator writes, as far as it changes.
    pub fn read_statuses(&self, reader: impl Fn(&serde_json::Value) + Send + Sync + 'static) {
        self.0.readers.add(Box::new(reader));
    }

    /// What operators did, counted.
    pub fn tally(&self) -> &Tally {
        &self.0.tally
    }

    /// How much has happened: changes of objects, and everything in the record.
    pub fn events(&self) -> u64 {
        self.0.fake.version() + u64::try_from(self.0.timeline.len()).unwrap_or(u64::MAX)
    }

    /// A seed for something of the story's own.
    pub fn draw(&self) -> u64 {
        self.with(|state| state.chance.bits())
    }

    // The operator.

    /// Starts an operator; when it is killed, it is started again by the same function.
    pub fn operate<F, Fut>(&self, build: F)
    where
        F: Fn(Seat) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let build: Build = Arc::new(move |seat| Box::pin(build(seat)));
        self.with(|state| state.build = Some(build));
        self.start_operator();
    }

    /// A seat for an operator that the story runs by itself.
    pub fn seat(&self) -> Seat {
        let inner = &self.0;
        let (tally, fake) = (inner.tally.clone(), inner.fake.clone());
        let observer = move |call: &str, side: Side, dies: bool| tally.passes(&fake, call, side, dies);
        let gate = Gate::doomed(Box::new(observer), self.doom());
        Seat::new(
            inner.fake.service(),
            &inner.etcds,
            &inner.machine,
            &inner.ledger,
            (&inner.faults, &inner.readers),
            gate,
        )
    }

    /// Starts another operator beside those that run.
    pub fn start_operator(&self) {
        let Some(build) = self.with(|state| state.build.clone()) else {
            return;
        };
        let seat = self.seat();
        let gate = seat.gate().clone();
        let operator = build(seat);
        let task = tokio::spawn({
            let gate = gate.clone();
            async move {
                tokio::select! {
                    biased;
                    () = gate.dead() => {}
                    () = operator => {}
                }
            }
        });
        self.with(|state| {
            state.operators.retain(|(gate, _)| !gate.is_dead());
            state.operators.push((gate, task.abort_handle()));
            state.starts += 1;
        });
        self.0.timeline.note(OPERATOR, "starts");
    }

    /// The gate of the operator that started last.
    pub fn gate(&self) -> Option<Gate> {
        self.with(|state| state.operators.last().map(|(gate, _)| gate.clone()))
    }

    /// Kills every operator: none of its calls goes on.
    pub fn kill_operator(&self) {
        self.0.timeline.note(OPERATOR, "is killed");
        let operators = self.with(|state| std::mem::take(&mut state.operators));
        for (gate, task) in operators {
            gate.kill();
            task.abort();
        }
    }

    /// Kills the operator at its nth passing from now on, before a call or before the answer of one, and starts it again
    /// a while later.
    pub fn crash_operator_at(&self, nth: u64, back_after: Duration) {
        let Some(gate) = self.gate() else { return };
        gate.kill_at(nth);
        self.restart_after(gate, back_after);
    }

    /// Kills the operator at one side of its next call of a name, and starts it again a while later.
    pub fn crash_operator_around(&self, call: &str, side: Side, back_after: Duration) {
        let Some(gate) = self.gate() else { return };
        gate.lie_in_wait(Ambush {
            call: call.to_owned(),
            side,
            is_stop: false,
        });
        self.restart_after(gate, back_after);
    }

    fn restart_after(&self, gate: Gate, back_after: Duration) {
        let this = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            gate.dead().await;
            if let Some(inner) = this.upgrade() {
                inner.timeline.note(OPERATOR, "crashes");
            }
            tokio::time::sleep(back_after).await;
            let Some(inner) = this.upgrade() else { return };
            Self(inner).start_operator_unless_one_lives();
        });
    }

    /// Another one may have taken the place of one that died.
    fn start_operator_unless_one_lives(&self) {
        if self.gate().is_none_or(|gate| gate.is_dead()) {
            self.start_operator();
        }
    }

    /// How often an operator was started.
    pub fn starts(&self) -> u64 {
        self.with(|state| state.starts)
    }

    // The end.

    /// Everything that was found so far, as text with the seed; empty if nothing was.
    pub fn complaint(&self) -> String {
        let violations = self.0.ledger.violations();
        if violations.is_empty() {
            return String::new();
        }
        let mut lines = vec![format!(
            "seed {}: {} promises broken",
            self.0.seed,
            violations.len()
        )];
        lines.extend(violations.iter().map(ToString::to_string));
        lines.push("what happened:".to_owned());
        lines.push(self.0.timeline.text());
        lines.join("\n")
    }

    /// Panics with what was found and what happened, if anything was found.
    pub fn check(&self) {
        let complaint = self.complaint();
        assert!(complaint.is_empty(), "{complaint}");
    }
}
