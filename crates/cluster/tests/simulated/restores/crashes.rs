//! The operator dies at every call it makes during a restore, before the call and between what it did and its answer,
//! and another one takes over: it still ends, and as it would have ended.
//!
//! Between two changes the world is the same wherever it dies: so it dies after each call that changes something, and else
//! only now and then, unless all are asked for.

use std::sync::Mutex;

use etcd_operator_testkit::gate::Side;
use etcd_operator_testkit::simulation::{NAMESPACE, Simulation, run};

use super::{Asked, cluster_id, corrupt, is_back, written};
use crate::SECOND;
use crate::seeds::variable;

/// How many calls change something at least, in any restore.
const LEAST: usize = 15;
/// How many of the other places are left out after each that is tried.
const SPARED: u64 = 100;
/// Calls by which an operator only looks, or tells people something.
const LOOKS: [&str; 11] = [
    "Connect",
    "Create events",
    "Get ",
    "HashKV",
    "List ",
    "MemberList",
    "Patch events",
    "Range",
    "Report",
    "Status",
    "Watch ",
];

type Passings = Vec<(String, Side)>;

/// The places at which to die.
fn places(passings: &Passings) -> Vec<u64> {
    let tries_all = variable("SIMULATION_EVERY_CALL").is_some();
    let looks = |call: &str| LOOKS.iter().any(|look| call.starts_with(look));
    let has_changed = |(call, side): &(String, Side)| *side == Side::After && !looks(call);
    assert!(passings.iter().filter(|passing| has_changed(passing)).count() > LEAST);
    let counted = (0_u64..).zip(passings);
    let tried = counted
        .filter(|(number, passing)| tries_all || has_changed(passing) || number.is_multiple_of(SPARED));
    tried.map(|(number, _)| number + 1).collect()
}

/// Tells a story as often as there are places for its operator to die from the moment on at which the restore is asked
/// for, and lets it die at another one each time.
fn at_every_call<F, Fut>(story: F)
where
    F: Fn(Simulation, u64) -> Fut + Send + Sync,
    Fut: Future<Output = Passings>,
{
    let places = Mutex::new(places(&run(1, |sim| story(sim, 0))));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Some(nth) = places.lock().unwrap().pop() else {
                        return;
                    };
                    run(1, |sim| story(sim, nth));
                }
            });
        }
    });
}

/// Asks, and lets the operator die at this passing from then on, if at any.
fn ask(sim: &Simulation, asked: &Asked, nth: u64) {
    if let Some(gate) = sim.gate().filter(|_| nth == 0) {
        gate.note();
    }
    asked.ask();
    if nth > 0 {
        sim.crash_operator_at(nth, SECOND);
    }
}

/// What the operator passed by now.
fn passings(sim: &Simulation) -> Passings {
    sim.gate().map(|gate| gate.noted()).unwrap_or_default()
}

/// It is asked for and ends well, though the operator dies at this passing.
async fn ends(sim: &Simulation, asked: &Asked, nth: u64) -> Passings {
    ask(sim, asked, nth);
    asked.ends("Succeeded").await;
    let passings = passings(sim);
    asked.served_by(3).await;
    assert!(nth == 0 || sim.starts() == 2, "it did not die at {nth}");
    sim.check();
    passings
}

/// It is asked for and rolled back, though the operator dies at this passing.
async fn is_rolled_back(sim: &Simulation, asked: &Asked, nth: u64) -> Passings {
    let before = cluster_id(sim);
    ask(sim, asked, nth);
    asked.ends("RolledBack").await;
    let passings = passings(sim);
    is_back(sim, &before).await;
    assert!(nth == 0 || sim.starts() == 2, "it did not die at {nth}");
    passings
}

#[test]
fn a_restore_ends_wherever_the_operator_dies() {
    at_every_call(|sim, nth| async move {
        let (asked, _writers) = written(&sim).await;
        ends(&sim, &asked, nth).await
    });
}

#[test]
fn a_restore_that_fails_is_rolled_back_wherever_the_operator_dies() {
    at_every_call(|sim, nth| async move {
        let (asked, _writers) = written(&sim).await;
        corrupt(&sim, "c-0");
        corrupt(&sim, "c-1");
        let passings = is_rolled_back(&sim, &asked, nth).await;
        assert_eq!(sim.ledger().verify_all(NAMESPACE, "c").await, 3);
        passings
    });
}

#[test]
fn a_restore_by_one_member_ends_wherever_the_operator_dies() {
    at_every_call(|sim, nth| async move {
        let (asked, _writers) = written(&sim).await;
        ends(&sim, &asked.on_volume("backups"), nth).await
    });
}

#[test]
fn a_restore_by_one_member_is_rolled_back_wherever_the_operator_dies() {
    at_every_call(|sim, nth| async move {
        let (asked, _writers) = written(&sim).await;
        corrupt(&sim, "c-0");
        is_rolled_back(&sim, &asked.on_volume("backups"), nth).await
    });
}
