//! Models of everything beside the operator that turns objects into running members: the controller of StatefulSets,
//! volumes, scheduler, nodes, kubelets, and the member before etcd with its real rules. They read and write the API
//! server as the real ones do, a moment late, and never decide anything for the operator.

mod api;
mod budgets;
mod content;
mod fetch;
mod guard;
mod hands;
mod jobs;
mod kubelet;
mod lookup;
mod member;
mod nodes;
mod peers;
mod scheduler;
mod sets;
mod state;
mod status;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use etcd_operator_etcd::flags::First;
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;

pub use self::fetch::FetchTrouble;
pub use self::lookup::{Found, Unreported};
pub use self::member::{
    MISLABELLED_FOR_MEMBERS_REPOSITORY, MISLABELLED_REPOSITORY, MISREADING_REPOSITORY, MISSING_REPOSITORY,
};

use self::api::Objects;
use self::jobs::Jobs;
use self::state::{Container, State};
use crate::Fake;
use crate::chance::Chance;
use crate::etcd::Etcds;
use crate::fake::EPOCH;
use crate::timeline::Timeline;

/// How late a machine is with what it hears.
const LAG: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// When something that was refused is tried again.
const AGAIN: Duration = Duration::from_millis(500);

/// A handle on the machines. Clones share them.
#[derive(Clone)]
pub struct Machine(Arc<Shared>);

struct Shared {
    fake: Fake,
    etcds: Etcds,
    timeline: Timeline,
    began: Instant,
    poke: Notify,
    state: Mutex<State>,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Machine")
    }
}

impl Machine {
    /// So many nodes, whose machines run from now on. Must be made inside a tokio runtime, and at the moment at which
    /// the fake was made, whose clock it shares.
    pub fn new(fake: &Fake, etcds: &Etcds, nodes: u8, seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let node = |number: u8| {
            let hours = u64::from(number % 3);
            let node = state::Node {
                is_up: true,
                is_connected: true,
                silent: None,
                // Clocks apart: an hour for each node.
                boot: Duration::from_secs(1000 + 3600 * hours),
                lateness: (Duration::from_millis(100), Duration::from_millis(600)),
            };
            (format!("node-{number}"), node)
        };
        let nodes: BTreeMap<String, state::Node> = (0..nodes).map(node).collect();
        for name in nodes.keys() {
            fake.put_object(nodes::object(name));
        }
        let state = State {
            chance: chance.split(),
            nodes,
            classes: BTreeSet::from([String::new(), "standard".to_owned()]),
            disks: BTreeMap::new(),
            homes: BTreeMap::new(),
            pods: BTreeMap::new(),
            too_large: BTreeSet::new(),
            backups: BTreeMap::new(),
            fetch_troubles: BTreeMap::new(),
            short_lives: BTreeMap::new(),
            jobs: Jobs::default(),
            is_nameless: false,
            is_weak: false,
            addresses: 0,
            collected: 0,
            decided: None,
            revisions: BTreeMap::new(),
        };
        let machine = Self(Arc::new(Shared {
            fake: fake.clone(),
            etcds: etcds.clone(),
            timeline: etcds.timeline(),
            began: Instant::now(),
            poke: Notify::new(),
            state: Mutex::new(state),
        }));
        tokio::spawn(run(Arc::downgrade(&machine.0)));
        machine
    }

    pub(crate) fn with<T>(&self, run: impl FnOnce(&mut State) -> T) -> T {
        let out = self.with_quietly(|state| {
            state.decided = None;
            run(state)
        });
        self.0.poke.notify_one();
        out
    }

    fn with_quietly<T>(&self, run: impl FnOnce(&mut State) -> T) -> T {
        run(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn look<T>(&self, run: impl FnOnce(&State) -> T) -> T {
        run(&self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn etcds(&self) -> &Etcds {
        &self.0.etcds
    }

    pub(crate) fn fake(&self) -> &Fake {
        &self.0.fake
    }

    pub(crate) fn note(&self, who: &str, what: impl fmt::Display) {
        self.0.timeline.note(who, what);
    }

    pub(crate) fn began(&self) -> Instant {
        self.0.began
    }

    /// A moment as the API server's clock has it.
    pub(crate) fn stamp(&self, at: Instant) -> String {
        self.at(at).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// Now, as the API server's clock has it.
    pub fn wall(&self) -> Timestamp {
        self.at(Instant::now())
    }

    fn at(&self, at: Instant) -> Timestamp {
        let epoch: Timestamp = EPOCH.parse().expect("the epoch is a timestamp");
        let passed = at.saturating_duration_since(self.0.began);
        epoch.checked_add(passed).unwrap_or(epoch)
    }

    pub(crate) fn is_weak(&self) -> bool {
        self.look(|state| state.is_weak)
    }

    /// A member has its permit: its container becomes etcd.
    pub(crate) fn permitted(&self, uid: &str, first: Option<First>) {
        self.with(|state| {
            let Some(mut pod) = state.pods.remove(uid) else {
                return;
            };
            if matches!(pod.container, Container::Waiting { .. }) {
                pod.container = member::launch(self, &mut pod, first, Instant::now());
            }
            state.pods.insert(uid.to_owned(), pod);
        });
    }

    /// A member died before it became etcd: its container ends.
    pub(crate) fn died(&self, uid: &str) {
        self.with(|state| {
            if let Some(pod) = state.pods.get_mut(uid) {
                let now = Instant::now();
                pod.container = kubelet::ended(pod, now, 137, "killed", now);
            }
        });
    }

    /// One look at everything; says when to look again.
    async fn step(&self) -> Option<Instant> {
        let mut due = Vec::new();
        let writes = {
            let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
            let objects = Objects::of(&self.0.fake);
            // Who decides by the objects alone has decided.
            let is_decided = state.decided.as_ref().is_some_and(|known| known.are(&objects));
            let mut writes = Vec::new();
            if !is_decided {
                writes.extend(sets::step(&objects, &mut state.revisions));
                writes.extend(scheduled(self, &objects, &mut state));
            }
            let others = kubelet::step(self, &objects, &mut state, &mut due);
            let jobs = jobs::step(self, &objects, &mut state, &mut due);
            let others = others
                .into_iter()
                .chain(jobs)
                .chain(nodes::step(&objects, &state, self, &mut due));
            let budgets = if is_decided {
                Vec::new()
            } else {
                budgets::step(&objects)
            };
            let has_decided = writes.is_empty() && budgets.is_empty();
            writes.extend(others.chain(budgets));
            state.decided = has_decided.then_some(objects);
            writes
        };
        for write in writes {
            if !api::write(&self.0.fake, write).await {
                due.push(Instant::now() + AGAIN);
            }
        }
        let version = self.0.fake.version();
        if self.with_quietly(|state| std::mem::replace(&mut state.collected, version)) != version {
            self.0.fake.collect_garbage();
        }
        due.into_iter().min()
    }
}

/// What scheduler and provisioner do, who do not know of one another: either may be the first to find a new pod, and the
/// scheduler looks again when a claim has its volume.
fn scheduled(machine: &Machine, objects: &Objects, state: &mut State) -> Vec<api::Write> {
    if state.chance.one_in(2) {
        let mut writes = scheduler::step(machine, objects, state);
        writes.extend(volumes::step(objects, state, machine.etcds()));
        return writes;
    }
    let writes = volumes::step(objects, state, machine.etcds());
    if writes.is_empty() {
        scheduler::step(machine, objects, state)
    } else {
        writes
    }
}

/// Lets the machines work until nobody holds them any more.
async fn run(shared: Weak<Shared>) {
    let (mut changes, mut shapes) = match shared.upgrade() {
        Some(shared) => (shared.fake.changes(), shared.etcds.shapes()),
        None => return,
    };
    loop {
        let due = {
            let Some(shared) = shared.upgrade() else { return };
            changes.update();
            shapes.update();
            Machine(shared).step().await
        };
        let Some(held) = shared.upgrade() else { return };
        let is_due = async {
            match due {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let is_alive = tokio::select! {
            biased;
            changed = changes.changed() => changed.is_ok(),
            changed = shapes.changed() => changed.is_ok(),
            () = held.poke.notified() => true,
            () = is_due => true,
        };
        if !is_alive {
            return;
        }
        let lag = {
            let mut state = held.state.lock().unwrap_or_else(PoisonError::into_inner);
            let (least, most) = LAG;
            state.chance.between(least, most)
        };
        drop(held);
        tokio::time::sleep(lag).await;
    }
}
