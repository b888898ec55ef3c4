//! Plans for worlds of every kind, written as the story each tells.

mod any_world;
mod awaits;
mod bootstrap;
mod corrected;
mod corrupt;
mod doubt;
mod fleeting;
mod given_up;
mod life;
mod lives;
mod properties;
mod replace;
mod restore;
mod restore_ends;
mod restore_props;
mod scale;
mod scene;
mod short;
mod silent;
mod stable;
mod stuck;
mod told;
mod waits;
mod waking;

use super::{Plan, plan};
use scene::Scene;

/// What a plan does, in one line.
fn line(scene: &Scene, plan: &Plan) -> String {
    let intent = plan.memory.intent.as_ref();
    let intent = intent.map_or_else(
        || "-".to_owned(),
        |intent| {
            let places: Vec<_> = intent.what.places().iter().map(ToString::to_string).collect();
            format!("{}({})", intent.what.kind(), places.join(","))
        },
    );
    let step = plan
        .step
        .as_ref()
        .map_or_else(|| "-".to_owned(), |step| scene.step(step));
    format!("{} {intent} {step}", plan.why.reason.as_str())
}

/// What the plan for this scene does, which is stored then.
fn follow(scene: &mut Scene) -> String {
    let next = plan(&scene.world);
    scene.stored(&next);
    line(scene, &next)
}

/// What the plan for this scene does.
fn planned(scene: &Scene) -> String {
    line(scene, &plan(&scene.world))
}
