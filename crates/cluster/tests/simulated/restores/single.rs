//! Restores of several members from a volume that one pod at a time can mount: one member restores, the others join it.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use etcd_operator_testkit::etcd::DataDir;
use etcd_operator_testkit::simulation::{NAMESPACE, Simulation, run};

use super::{Asked, MEMBERS, cluster_id, corrupt, is_back, is_back_when_withdrawn, written};
use crate::stories::{cluster, is_quorum_lost, status};
use crate::{MINUTE, SECOND};

const BACKUPS: &str = "backups";

/// The clusters whose data lie on the volume of a member, whether or not it has a pod.
fn owners(sim: &Simulation, member: &str) -> Vec<String> {
    let disk = sim.machine().disk(NAMESPACE, &format!("data-{member}"));
    let content = disk.and_then(|disk| sim.etcds().content(disk));
    let content = content.unwrap_or_else(|| panic!("{member} has no volume"));
    let heads = content
        .data
        .iter()
        .chain(content.kept.values())
        .filter_map(DataDir::head);
    heads.map(|head| head.cluster.to_string()).collect()
}

#[test]
fn one_member_restores_and_the_others_join_it() {
    run(1, |sim| async move {
        let (asked, _writers) = written(&sim).await;
        let asked = asked.on_volume(BACKUPS);
        let before = cluster_id(&sim);
        let lost = Arc::new(AtomicBool::new(false));
        let told = lost.clone();
        sim.read_statuses(move |status| {
            told.fetch_or(is_quorum_lost(status), Ordering::Relaxed);
        });
        asked.ask();
        sim.expect("the restored member serves", 15 * MINUTE, |_| {
            asked.phase() == "Serving"
        })
        .await;
        tokio::time::sleep(5 * SECOND).await;
        assert_ne!(asked.progress()["open"], true, "nothing was compared yet");
        for member in ["c-1", "c-2"] {
            assert_eq!(
                owners(&sim, member),
                slice::from_ref(&before),
                "{member} has its old data until the restored ones were compared"
            );
        }
        asked.served_by(3).await;
        let restored = cluster_id(&sim);
        assert_eq!(
            owners(&sim, "c-0"),
            [restored.clone(), before],
            "c-0 keeps its old data"
        );
        for member in ["c-1", "c-2"] {
            assert_eq!(owners(&sim, member), slice::from_ref(&restored), "{member}");
        }
        for member in MEMBERS {
            let pod = sim.fake().get_object("v1", "Pod", NAMESPACE, member).unwrap();
            assert!(!pod.to_string().contains(BACKUPS), "{member} mounts the volume");
        }
        assert!(
            !lost.load(Ordering::Relaxed),
            "the restart of the restored member is no lost quorum"
        );
        sim.check();
    });
}

#[test]
fn a_backup_that_the_one_member_cannot_have_leaves_the_old_cluster_as_it_was() {
    run(2, |sim| async move {
        let (asked, _writers) = written(&sim).await;
        let asked = asked.on_volume(BACKUPS);
        let before = cluster_id(&sim);
        corrupt(&sim, "c-0");
        asked.ask();
        asked.ends("RolledBack").await;
        is_back(&sim, &before).await;
    });
}

#[test]
fn one_that_is_withdrawn_before_the_commit_leaves_the_old_cluster_as_it_was() {
    for seconds in [0, 2, 5, 9] {
        run(3, |sim| async move {
            let (asked, _writers) = written(&sim).await;
            is_back_when_withdrawn(&sim, &asked.on_volume(BACKUPS), "c-0", seconds).await;
        });
    }
}

#[test]
fn a_cluster_that_lost_its_quorum_is_restored_into_all_its_members() {
    run(4, |sim| async move {
        cluster(&sim, 3).await;
        let writers = sim.write("c", 2, SECOND);
        tokio::time::sleep(15 * SECOND).await;
        let asked = Asked::of(&sim, "back").on_volume(BACKUPS);
        drop(writers);
        for member in ["c-0", "c-1"] {
            sim.wipe(member);
        }
        sim.expect("that is said", 6 * MINUTE, |sim| is_quorum_lost(&status(sim)))
            .await;
        asked.ask();
        asked.served_by(3).await;
        sim.check();
    });
}
