//! Changes of the spec reach the members of a cluster that serves, one after the other, and clients keep writing.

mod broken;
mod change;
mod ephemeral;
mod held;
mod interrupted;
mod many;
mod quota;
mod refused;
mod removed;
mod restart;
mod restored;
mod strategy;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_api::condition::ConditionType;
use etcd_operator_e2e::scenario::{Bed, Scenario};
use etcd_operator_e2e::workload::Workload;
use serde_json::{Value, json};

use crate::cluster::tenant::{Tenant, is};

/// A cluster of three or more must not keep clients from writing for longer than this, in milliseconds.
const MAX_WRITE_GAP: u64 = 5_000;

macro_rules! shared {
    ($name:literal, $story:path) => {
        Scenario::gate("rollout", $name, Bed::Shared, |stage| Box::pin($story(stage)))
    };
}

macro_rules! alone {
    ($name:literal, $story:path) => {
        Scenario::gate("rollout", $name, Bed::Alone, |stage| Box::pin($story(stage)))
    };
}

/// Those of the gate.
const GATE: [Scenario; 1] = [shared!(
    "a_patch_version_is_rolled_out_under_load",
    change::patch_version
)];

/// The rest, for their time.
const FULL: [Scenario; 32] = [
    shared!(
        "an_image_whose_etcd_does_not_start_stops_at_one_member_and_is_corrected",
        broken::image
    ),
    shared!(
        "an_image_that_cannot_be_used_touches_no_member",
        broken::unusable_image
    ),
    shared!(
        "an_image_that_cannot_be_used_does_not_stop_the_only_member",
        broken::unusable_image_of_only_member
    ),
    shared!("members_restart_on_request", restart::on_request),
    shared!(
        "pods_that_a_limit_range_refuses_touch_no_member",
        refused::by_limit_range
    ),
    shared!(
        "pods_that_pod_security_refuses_touch_no_member",
        refused::by_a_name_and_by_pod_security
    ),
    shared!(
        "flags_resources_and_environment_change_in_one_rollout",
        change::settings
    ),
    shared!("scaling_and_a_change_are_one_edit", change::with_scaling),
    shared!(
        "a_flag_that_ends_the_only_member_is_corrected",
        broken::only_member
    ),
    shared!(
        "a_flag_that_ends_one_of_two_members_is_corrected",
        broken::member_of_two
    ),
    shared!(
        "nodes_that_do_not_exist_are_selected_and_corrected",
        broken::node_selector
    ),
    shared!("on_delete_waits_for_the_user", strategy::on_delete),
    shared!("a_paused_rollout_changes_nothing", strategy::paused),
    shared!("a_user_evicts_a_pod_during_a_rollout", interrupted::by_eviction),
    shared!(
        "a_user_removes_the_member_that_restarts",
        removed::while_it_restarts
    ),
    shared!(
        "a_user_pauses_a_rollout_and_removes_a_member",
        removed::while_paused
    ),
    alone!(
        "the_operator_is_killed_during_a_rollout",
        interrupted::by_killed_operator
    )
    .long(),
    shared!(
        "members_with_their_data_in_pods_are_replaced_one_by_one",
        ephemeral::empty_dir
    ),
    shared!(
        "the_manifest_of_the_older_operator_gets_resources",
        ephemeral::ancestor
    ),
    shared!(
        "an_untried_image_with_another_version_than_its_tag_stops_at_one_member",
        broken::lying_image
    ),
    shared!(
        "an_untried_image_with_another_version_than_its_tag_does_not_upgrade_the_only_member",
        broken::lying_image_of_only_member
    ),
    shared!(
        "a_new_cluster_does_not_start_with_an_image_of_another_version",
        broken::lying_image_of_new_cluster
    ),
    shared!("a_larger_quota_cures_a_full_database_under_load", quota::raised),
    shared!(
        "a_restore_during_a_stalled_rollout_succeeds",
        restored::while_stalled
    ),
    alone!(
        "on_delete_takes_the_change_as_nodes_are_drained",
        strategy::on_delete_drained
    )
    .on_three_nodes(),
    alone!(
        "a_paused_rollout_changes_nothing_as_nodes_are_drained",
        strategy::paused_drained
    )
    .on_three_nodes(),
    alone!("a_node_is_cut_off_during_a_rollout", interrupted::by_cut_node).on_three_nodes(),
    shared!("a_cluster_is_scaled_during_a_rollout", interrupted::by_scaling),
    shared!(
        "a_member_has_lost_its_data_when_the_spec_changes",
        interrupted::by_lost_data
    ),
    shared!("a_backup_that_runs_is_not_interrupted", interrupted::by_backup),
    alone!("of_sixteen_clusters_only_so_many_roll_at_once", many::sixteen),
    Scenario {
        bed: Bed::Own(1),
        ..shared!(
            "a_change_that_was_pending_under_0_1_0_is_held",
            held::until_edited
        )
    }
    .long(),
];

/// All of them.
pub fn scenarios() -> impl Iterator<Item = Scenario> {
    GATE.into_iter().chain(FULL.map(Scenario::full))
}

/// Waits until every member runs the current spec, as scripts do.
pub async fn await_rolled_out(tenant: &Tenant) -> Result<()> {
    let object = format!("etcd/{}", tenant.name());
    tenant
        .kubectl(&["wait", "--for=condition=RolledOut", "--timeout=5m", &object])
        .await?;
    Ok(())
}

/// Whether every member runs the current spec.
pub fn is_rolled_out(status: &EtcdClusterStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|one| one.type_ == ConditionType::RolledOut.as_str() && one.status == "True")
}

/// Whether the condition `RolledOut` is false for this reason.
pub fn is_rollout(status: &EtcdClusterStatus, reason: &str) -> bool {
    is(status, ConditionType::RolledOut.as_str(), "False", reason)
}

/// Whether something stands in the way of the next step for this reason.
pub fn has_blocker(status: &EtcdClusterStatus, reason: &str) -> bool {
    let plan = status.plan.iter();
    let mut blockers = plan.flat_map(|plan| plan.blockers.iter().flatten());
    blockers.any(|blocker| blocker.reason == reason)
}

/// The name of the member that is being restarted.
fn current(status: &EtcdClusterStatus) -> Option<&str> {
    let current = status.rollout.as_ref()?.current.as_ref()?;
    Some(&current.name)
}

/// Waits until a member is being restarted, and returns its name.
async fn restarting(tenant: &Tenant) -> Result<String> {
    let status = tenant
        .says("a member is restarted", |status| current(status).is_some())
        .await?;
    let name = current(&status).context("no member is restarted")?;
    Ok(name.to_owned())
}

/// The UIDs of the other pods of three, by name.
async fn other_pods(tenant: &Tenant, pod: &str) -> Result<BTreeMap<String, String>> {
    let pods = tenant.stage().pods().await?;
    let mut uids = BTreeMap::new();
    for other in (0..3).map(|ordinal| tenant.pod(ordinal)) {
        if other != pod {
            let uid = pods.get(&other).await?.metadata.uid;
            uids.insert(other, uid.unwrap_or_default());
        }
    }
    Ok(uids)
}

/// Ends the clients, whose writes must all be there, and fails if they could not write for too long.
pub async fn survived_without_gap(tenant: &Tenant, load: Workload) -> Result<()> {
    let tally = tenant.judged(load).await?;
    tenant.note(&format!("largest write gap: {} ms", tally.longest_gap));
    ensure!(
        tally.longest_gap <= MAX_WRITE_GAP,
        "clients could not write for {} ms",
        tally.longest_gap
    );
    Ok(())
}

/// The spec with a flag that etcd has anyway, so that only its value is a change.
fn with_flag(mut spec: Value, max_txn_ops: u32) -> Value {
    spec["etcd"] = json!({"extraArgs": [format!("--max-txn-ops={max_txn_ops}")]});
    spec
}

/// Which of these pods run etcd with the flag of [`with_flag`].
async fn pods_with_flag(tenant: &Tenant, size: usize, max_txn_ops: u32) -> Result<BTreeSet<String>> {
    let flag = format!("--max-txn-ops={max_txn_ops}");
    let mut found = BTreeSet::new();
    for pod in (0..size).map(|ordinal| tenant.pod(ordinal)) {
        if process_texts(tenant, &pod, "cmdline").await?.contains(&flag) {
            found.insert(pod);
        }
    }
    Ok(found)
}

/// The command line or the environment of the etcd that runs in a pod, whatever objects say.
async fn process_texts(tenant: &Tenant, pod: &str, file: &str) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for process in tenant.container(pod).await?.processes()? {
        let text = fs::read_to_string(format!("/proc/{}/{file}", process.pid()))?;
        texts.extend(text.split('\0').map(str::to_owned));
    }
    Ok(texts)
}

/// The UIDs of the pods that are the same as before.
pub fn kept(before: &[String], after: &[String]) -> usize {
    after.iter().filter(|uid| before.contains(uid)).count()
}

/// Whether the etcd containers of all pods have these resources.
pub async fn have_resources(tenant: &Tenant, size: usize, resources: &Value) -> Result<()> {
    for pod in (0..size).map(|ordinal| tenant.pod(ordinal)) {
        let path = ".spec.containers[?(@.name==\"etcd\")].resources";
        let found = tenant.field(&format!("pod/{pod}"), path).await?;
        let found: Value = serde_json::from_str(&found)?;
        ensure!(found == *resources, "{pod} has {found}");
    }
    Ok(())
}

/// Waits for five members that all have the flag. Those that were there before are among them.
async fn grew_to_five(tenant: &Tenant, before: &[Value]) -> Result<()> {
    await_rolled_out(tenant).await?;
    tenant.converged(5).await?;
    await_rolled_out(tenant).await?;
    let changed = pods_with_flag(tenant, 5, 256).await?;
    ensure!(changed.len() == 5, "only {changed:?} have the flag");
    let after = tenant.members().await?;
    ensure!(
        before.iter().all(|member| after.contains(member)),
        "members were replaced"
    );
    Ok(())
}
