//! Members restart while backups run.

use jiff::SignedDuration;

use super::rollout::{edited, template_changed};
use super::scene::{Scene, waiting};
use super::{plan, planned};
use crate::observed_state::RunningBackup;

/// Members are to be restarted, and a backup started so many seconds ago.
fn backed_up(seconds: i64) -> Scene {
    let mut scene = template_changed(3);
    scene.observed.running_backups = vec![RunningBackup {
        name: "nightly".to_owned(),
        started_at: scene.observed.now - SignedDuration::from_secs(seconds),
    }];
    scene
}

#[test]
fn the_next_member_restarts_when_the_backup_that_runs_has_finished() {
    let mut scene = backed_up(60);
    let waits = plan(&scene.observed);
    assert_eq!(waits.step, None);
    assert_eq!(
        waits.explanation.text,
        "c-1 restarts when the backup of EtcdBackup nightly has finished, or after 10 minutes."
    );
    scene.observed.running_backups.clear();
    assert_eq!(planned(&scene), "RollingOut - restart c-1 (Evicted)");
}

#[test]
fn no_restart_waits_for_more_than_ten_minutes() {
    assert_eq!(planned(&backed_up(600)), "RollingOut - restart c-1 (Evicted)");
    // One backup follows the other.
    let mut scene = backed_up(0);
    let started_at = scene.observed.now;
    for (seconds, waits) in [(599, true), (600, false)] {
        scene.observed.now = started_at + SignedDuration::from_secs(seconds);
        scene.observed.running_backups[0].started_at = scene.observed.now;
        assert_eq!(plan(&scene.observed).step.is_none(), waits, "{seconds}");
    }
}

#[test]
fn a_pod_that_does_not_start_waits_for_no_backup() {
    let mut scene = backed_up(60);
    scene.silent(1);
    scene.pod_at(1).container = waiting("ImagePullBackOff");
    assert_eq!(planned(&scene), "RollingOut - delete stopped c-1");
}

#[test]
fn the_ten_minutes_do_not_begin_while_other_clusters_are_rolled_out() {
    let mut scene = edited(3);
    scene.observed.wanted.has_slot = false;
    let queued = plan(&scene.observed);
    scene.stored(&queued);
    scene.observed.now += SignedDuration::from_mins(30);
    scene.observed.wanted.has_slot = true;
    let changed = plan(&scene.observed);
    assert!(changed.layout.as_ref().expect("a layout").may_update_template());
    scene.stored(&changed);
    scene.observed.running_backups = vec![RunningBackup {
        name: "nightly".to_owned(),
        started_at: scene.observed.now,
    }];
    assert_eq!(plan(&scene.observed).step, None);
}
