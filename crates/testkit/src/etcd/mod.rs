//! A deterministic model of etcd clusters behind `etcd::port`: processes, their disks, elections, replication, changes of
//! members and what etcd refuses, on tokio's clock. It loses data exactly when etcd does: when a voter comes back with
//! less than it had acknowledged.
//!
//! Where nothing happens it costs nothing: there are no heartbeats, only what follows from a change. Not modelled:
//! authentication, leases, watches, snapshots of the log, votes before the vote of old versions.

mod applied;
mod boot;
mod calls;
mod chronicle;
mod client;
pub mod conformance;
mod disk;
mod downgrade;
mod election;
mod faults;
mod hands;
mod ids;
mod leader;
mod line;
mod links;
mod log;
mod network;
mod port;
mod process;
mod rules;
mod snapshot;
mod truth;
mod versions;
mod world;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::watch;
use tokio::time::Instant;

pub use self::client::{Client, Keys};
pub use self::disk::{Content, DataDir, DiskId, WalHead};
pub use self::faults::{CallFault, Calls};
pub use self::line::{Caller, Dialer};
pub use self::process::{At, Exit, ProcessId, Start};
pub use self::snapshot::Snapshot;
pub(crate) use self::snapshot::restored;
pub use self::truth::{Judge, Step, StepKind, Truth, Voter};
pub use self::world::{Finding, FindingKind};

use self::world::World;
use crate::signal::Signal;
use crate::timeline::Timeline;

/// A handle on the model. Clones share it.
#[derive(Clone)]
pub struct Etcds(Arc<Shared>);

struct Shared {
    world: Mutex<World>,
    start: Instant,
    /// Counts changes that somebody may wait for.
    changed: Signal,
    /// Counts changes that can make a member ready or not.
    shaped: Signal,
    /// When the next event is due, for the task that lets it happen.
    next: watch::Sender<Option<At>>,
}

impl fmt::Debug for Etcds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Etcds")
    }
}

impl Shared {
    /// Lets everything happen that is due, then does something, then tells whoever waits.
    fn with<T>(&self, run: impl FnOnce(&mut World) -> T) -> T {
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        world.run_until(Instant::now().saturating_duration_since(self.start));
        let out = run(&mut world);
        let (version, shape, next) = (world.version, world.shape, world.next());
        drop(world);
        self.changed.set(version);
        self.shaped.set(shape);
        send(&self.next, next);
        out
    }
}

fn send<T: PartialEq>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|known| {
        let is_news = *known != value;
        *known = value;
        is_news
    });
}

/// Lets events happen when they are due, until nobody holds the model any more.
async fn run(shared: Weak<Shared>, mut next: watch::Receiver<Option<At>>, start: Instant) {
    loop {
        let due = *next.borrow_and_update();
        let is_due = async {
            match due {
                Some(at) => tokio::time::sleep_until(start + at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            changed = next.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = is_due => {
                let Some(shared) = shared.upgrade() else { return };
                shared.with(|_| ());
            }
        }
    }
}

impl Etcds {
    /// An empty model whose chances come from a seed. Must be made inside a tokio runtime, which it uses.
    pub fn new(seed: u64) -> Self {
        Self::with_timeline(seed, Timeline::new())
    }

    /// The same, noting what happens in a record that others write to as well.
    pub fn with_timeline(seed: u64, timeline: Timeline) -> Self {
        let start = Instant::now();
        let (next, receiver) = watch::channel(None);
        let shared = Arc::new(Shared {
            world: Mutex::new(World::new(seed, timeline)),
            start,
            changed: Signal::default(),
            shaped: Signal::default(),
            next,
        });
        tokio::spawn(run(Arc::downgrade(&shared), receiver, start));
        Self(shared)
    }

    pub(crate) fn with<T>(&self, run: impl FnOnce(&mut World) -> T) -> T {
        self.0.with(run)
    }

    /// Waits until the model has an answer. Asks again whenever something changed.
    pub(crate) async fn until<T>(&self, mut ask: impl FnMut(&mut World) -> Option<T>) -> T {
        let mut changes = self.0.changed.subscribe();
        loop {
            changes.update();
            if let Some(answer) = self.with(&mut ask) {
                return answer;
            }
            // The sender lives as long as this handle does.
            let _ = changes.changed().await;
        }
    }
}
