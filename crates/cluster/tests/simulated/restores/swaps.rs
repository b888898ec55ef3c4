//! The restored data take the old ones' place, and something happens when some members have done that and others not.

use etcd_operator_testkit::simulation::{NAMESPACE, Simulation, run};

use super::{Asked, MEMBERS, cluster_id, delay, is_swapped, written};
use crate::stories::plan;
use crate::{MINUTE, SECOND};

/// What happens to a member, or to the operator beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    Kill,
    DeletePod,
    LoseNode,
    Wipe,
    CrashOperator,
    CutOff,
}

const BLOWS: [Blow; 6] = [
    Blow::Kill,
    Blow::DeletePod,
    Blow::LoseNode,
    Blow::Wipe,
    Blow::CrashOperator,
    Blow::CutOff,
];

/// Some members run on the restored data, and the permits of the others are under way.
async fn swapped(sim: &Simulation, asked: &Asked, early: &[&str]) -> String {
    let before = cluster_id(sim);
    asked.ask();
    sim.expect("most are prepared", 5 * MINUTE, |_| {
        let told = asked.progress()["members"].to_string();
        told.matches("Prepared").count() >= 2 || asked.phase() == "Committed"
    })
    .await;
    for late in MEMBERS.iter().filter(|member| !early.contains(member)) {
        delay(sim, late, 40 * SECOND, 50 * SECOND);
    }
    sim.expect("the early ones are swapped", 5 * MINUTE, |sim| {
        early.iter().all(|member| is_swapped(sim, member, &before))
    })
    .await;
    before
}

fn strike(sim: &Simulation, blow: Blow, member: &str) {
    sim.timeline()
        .note("story", format_args!("{blow:?} befalls {member}"));
    match blow {
        Blow::Kill => sim.kill(member),
        Blow::DeletePod => {
            sim.fake().delete_object("v1", "Pod", NAMESPACE, member);
        }
        Blow::LoseNode => {
            let node = sim.pod(member).expect("it is there").node;
            sim.machine().lose(&node);
            let sim = sim.clone();
            tokio::spawn(async move {
                tokio::time::sleep(3 * MINUTE).await;
                sim.machine().restore(&node);
            });
        }
        Blow::Wipe => sim.wipe(member),
        Blow::CrashOperator => {
            sim.kill_operator();
            let sim = sim.clone();
            tokio::spawn(async move {
                tokio::time::sleep(5 * SECOND).await;
                sim.start_operator();
            });
        }
        Blow::CutOff => {
            sim.part(member, true);
            let (sim, member) = (sim.clone(), member.to_owned());
            tokio::spawn(async move {
                tokio::time::sleep(2 * MINUTE).await;
                sim.part(&member, false);
            });
        }
    }
}

/// The others start when their permits come; what a permit that is late leads to is waited for.
async fn ends(sim: &Simulation, asked: &Asked) {
    asked.served_by(3).await;
    sim.check();
}

#[test]
fn it_ends_whatever_befalls_one_of_three_that_is_swapped() {
    for blow in BLOWS {
        for member in ["c-0", "c-2"] {
            run(1, |sim| async move {
                let (asked, _writers) = written(&sim).await;
                swapped(&sim, &asked, &[member]).await;
                strike(&sim, blow, member);
                ends(&sim, &asked).await;
            });
        }
    }
}

#[test]
fn it_ends_whatever_befalls_one_that_is_not_yet_swapped() {
    for blow in BLOWS {
        for early in [&["c-0"][..], &["c-0", "c-1"][..]] {
            run(2, |sim| async move {
                let (asked, _writers) = written(&sim).await;
                swapped(&sim, &asked, early).await;
                strike(&sim, blow, "c-2");
                ends(&sim, &asked).await;
            });
        }
    }
}

#[test]
fn it_ends_whatever_befalls_one_of_two_that_are_swapped() {
    for blow in BLOWS {
        run(3, |sim| async move {
            // What only two of three have acknowledged is gone with one of them and its disk.
            let (asked, writers) = written(&sim).await;
            drop(writers);
            swapped(&sim, &asked, &["c-1", "c-2"]).await;
            strike(&sim, blow, "c-1");
            ends(&sim, &asked).await;
        });
    }
}

#[test]
fn a_process_that_dies_anywhere_in_its_swap_is_swapped_by_the_next() {
    for steps in 0..7 {
        let member = MEMBERS[steps % 3];
        run(4, |sim| async move {
            let (asked, _writers) = written(&sim).await;
            asked.ask();
            sim.machine().die_in_start(member, steps);
            ends(&sim, &asked).await;
        });
    }
}

#[test]
fn all_processes_die_anywhere_in_their_swaps_and_it_still_ends() {
    for steps in 0..7 {
        run(5, |sim| async move {
            let (asked, _writers) = written(&sim).await;
            asked.ask();
            for member in MEMBERS {
                sim.machine().die_in_start(member, steps);
            }
            ends(&sim, &asked).await;
        });
    }
}

#[test]
fn two_of_three_lost_before_the_cluster_served_begin_anew_from_the_same_backup() {
    run(6, |sim| async move {
        let (asked, _writers) = written(&sim).await;
        let before = swapped(&sim, &asked, &["c-0"]).await;
        let incarnation = asked.progress()["incarnation"].as_i64().unwrap();
        sim.wipe("c-0");
        sim.wipe("c-1");
        sim.fake().delete_object("v1", "Pod", NAMESPACE, "c-1");
        ends(&sim, &asked).await;
        assert_eq!(asked.phase(), "Finished", "{}", plan(&sim));
        assert_ne!(cluster_id(&sim), before);
        let now = crate::stories::status(&sim)["incarnation"].as_i64().unwrap();
        assert!(now >= incarnation, "{now} after {incarnation}");
    });
}

#[test]
fn a_member_whose_node_is_gone_for_good_before_its_swap_is_replaced_and_none_goes_back() {
    run(7, |sim| async move {
        let (asked, _writers) = written(&sim).await;
        let before = swapped(&sim, &asked, &["c-0", "c-1"]).await;
        let node = sim.pod("c-2").unwrap().node;
        sim.machine().lose(&node);
        ends(&sim, &asked).await;
        assert_ne!(cluster_id(&sim), before);
    });
}
