//! Plans for worlds of every kind, written as the story each tells.

mod any_cluster;
mod await_restore;
mod backup_first;
mod bootstrap;
mod bootstrap_retry;
mod certificates;
mod corrected_restore;
mod corrupt;
mod diagnose;
mod doubt;
mod downgrade;
mod explanations;
mod fleeting;
mod foreign_steps;
mod given_up;
mod hibernation_exit;
mod image_check;
mod life;
mod lives;
mod log_snapshot;
mod lying_image;
mod minor_upgrade;
mod pod_admission;
mod point_of_no_return;
mod properties;
mod readiness;
mod replace;
mod restore;
mod restore_ends;
mod restore_props;
mod restore_single;
mod rollout;
mod rollout_pace;
mod rollout_waits;
mod running_backup;
mod scale;
mod scene;
mod stable;
mod strategy;
mod stuck;
mod summary;
mod template_not_served;
mod version_path;

use super::{Plan, plan};
use scene::Scene;

/// What a plan does, in one line.
fn line(scene: &Scene, plan: &Plan) -> String {
    let pending = plan.persisted.pending.as_ref();
    let pending = pending.map_or_else(
        || "-".to_owned(),
        |pending| {
            let ordinals: Vec<_> = pending
                .operation
                .ordinals()
                .iter()
                .map(ToString::to_string)
                .collect();
            format!("{}({})", pending.operation.kind(), ordinals.join(","))
        },
    );
    let step = plan
        .step
        .as_ref()
        .map_or_else(|| "-".to_owned(), |step| scene.step(step));
    format!("{} {pending} {step}", plan.explanation.reason.as_str())
}

/// What the plan for this scene does, which is stored then.
fn follow(scene: &mut Scene) -> String {
    let next = plan(&scene.observed);
    scene.stored(&next);
    line(scene, &next)
}

/// What the plan for this scene does.
fn planned(scene: &Scene) -> String {
    line(scene, &plan(&scene.observed))
}
