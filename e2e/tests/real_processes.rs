//! Two managers as processes against a real API server: killed, stopped, made to stand still; started too early.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use etcd_operator_api::{EtcdCluster, crd};
use etcd_operator_e2e::control_plane::{AuditEntry, AuditFilter};
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::process::Sent;
use etcd_operator_e2e::{ControlPlane, Operator, Options};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

const SOON: Duration = Duration::from_secs(30);
/// More than an API server needs to take in while a manager is kept busy.
const MANY: usize = 60;
/// How many requests a manager has under way at most: one of each worker.
const IN_FLIGHT: usize = 8;

async fn bed_with_definitions() -> Result<ControlPlane> {
    let bed = ControlPlane::start(Options::default()).await?;
    bed.apply_crds(&definitions()?).await?;
    Ok(bed)
}

fn definitions() -> Result<String> {
    let documents: Result<Vec<_>, _> = crd::all().iter().map(serde_json::to_string).collect();
    Ok(documents?.join("\n---\n"))
}

async fn clusters(bed: &ControlPlane, namespace: &str) -> Result<Api<EtcdCluster>> {
    Ok(Api::namespaced(bed.client().await?, namespace))
}

async fn create(clusters: &Api<EtcdCluster>, name: &str) -> Result<()> {
    let cluster = EtcdCluster::new(name, serde_json::from_value(json!({"size": 3}))?);
    clusters.create(&PostParams::default(), &cluster).await?;
    Ok(())
}

/// Waits until the status of every cluster is about its newest spec.
async fn all_observed(clusters: &Api<EtcdCluster>) -> Result<()> {
    until("statuses about the newest specs", SOON, || async {
        let all = clusters.list(&ListParams::default()).await?.items;
        let is_observed = |c: &EtcdCluster| {
            c.status
                .as_ref()
                .is_some_and(|s| s.observed_generation == c.metadata.generation)
        };
        Ok(all.iter().all(is_observed).then_some(()))
    })
    .await
}

/// Which of the processes holds the lease.
async fn holder(bed: &ControlPlane, namespace: &str) -> Result<Option<String>> {
    let leases: Api<Lease> = Api::namespaced(bed.client().await?, namespace);
    let lease = leases.get_opt("etcd-operator").await?;
    let identity = lease.and_then(|lease| lease.spec?.holder_identity);
    Ok(identity.and_then(|identity| Some(identity.split_once('_')?.0.to_owned())))
}

async fn until_held_by(bed: &ControlPlane, namespace: &str, name: &str) -> Result<Duration> {
    let began = Instant::now();
    until(&format!("{name} holds the lease"), SOON, || async {
        let found = holder(bed, namespace).await?;
        Ok((found.as_deref() == Some(name)).then_some(()))
    })
    .await?;
    Ok(began.elapsed())
}

/// `first` leads, `second` stands by, both are warm.
async fn pair(bed: &ControlPlane, namespace: &str) -> Result<(Operator, Operator)> {
    let mut first = Operator::start(bed, "first", namespace, &[]).await?;
    first
        .until_ready(|code, page| code == 200 && page.contains("lease: leading"))
        .await?;
    let mut second = Operator::start(bed, "second", namespace, &[]).await?;
    second
        .until_ready(|code, page| code == 200 && page.contains("lease: standing by"))
        .await?;
    Ok((first, second))
}

#[tokio::test]
async fn a_killed_leader_is_followed_within_fifteen_seconds_by_one_that_is_warm() -> Result<()> {
    let bed = bed_with_definitions().await?;
    let namespace = bed.namespace("killed").await?;
    let clusters = clusters(&bed, &namespace).await?;
    let (first, mut second) = pair(&bed, &namespace).await?;
    create(&clusters, "before").await?;
    all_observed(&clusters).await?;

    first.send(Sent::Kill)?;
    create(&clusters, "after").await?;
    let took = until_held_by(&bed, &namespace, "second").await?;
    assert!(took <= Duration::from_secs(15), "taken over after {took:?}");
    all_observed(&clusters).await?;
    second
        .until_ready(|_, page| page.contains("lease: leading"))
        .await?;
    println!("taken over {:.1} s after the kill", took.as_secs_f32());
    Ok(())
}

#[tokio::test]
async fn a_terminated_leader_hands_over_within_two_seconds_and_ends_well() -> Result<()> {
    let bed = bed_with_definitions().await?;
    let namespace = bed.namespace("terminated").await?;
    let clusters = clusters(&bed, &namespace).await?;
    let (mut first, _second) = pair(&bed, &namespace).await?;
    first.send(Sent::Terminate)?;
    let took = until_held_by(&bed, &namespace, "second").await?;
    assert!(took <= Duration::from_secs(2), "handed over after {took:?}");
    let status = first.ended(SOON).await?;
    assert!(status.success(), "{status}\n{}", first.logged());
    create(&clusters, "after").await?;
    all_observed(&clusters).await?;
    println!("handed over {:.1} s after SIGTERM", took.as_secs_f32());
    Ok(())
}

#[tokio::test]
async fn it_ends_well_when_it_is_told_to_before_anybody_has_answered_it() -> Result<()> {
    let bed = ControlPlane::start(Options::default()).await?;
    let namespace = bed.namespace("early-end").await?;
    bed.pause_apiserver()?;
    let mut operator = Operator::start(&bed, "early-end", &namespace, &[]).await?;
    // Its first line: from here on it has begun.
    until("its first line", SOON, || async {
        Ok(operator.logged().contains("starting").then_some(()))
    })
    .await?;
    operator.send(Sent::Terminate)?;
    let status = operator.ended(SOON).await?;
    assert!(status.success(), "{status}\n{}", operator.logged());
    Ok(())
}

#[tokio::test]
async fn a_leader_that_stood_still_changes_nothing_when_it_goes_on() -> Result<()> {
    let bed = bed_with_definitions().await?;
    let namespace = bed.namespace("still").await?;
    let clusters = clusters(&bed, &namespace).await?;
    let (mut first, _second) = pair(&bed, &namespace).await?;
    for n in 0..MANY {
        create(&clusters, &format!("c{n}")).await?;
    }
    all_observed(&clusters).await?;

    // It is stopped with work in its hands: every object changes at once, and it has answered for some of them.
    let grow = Patch::Merge(json!({"spec": {"size": 5}}));
    let params = PatchParams::default();
    let names: Vec<String> = (0..MANY).map(|n| format!("c{n}")).collect();
    let patches = names.iter().map(|name| clusters.patch(name, &params, &grow));
    futures::future::try_join_all(patches).await?;
    first.send(Sent::Pause)?;
    until_held_by(&bed, &namespace, "second").await?;
    all_observed(&clusters).await?;

    let mark = bed.audit_mark();
    first.send(Sent::Resume)?;
    // It finds its lease gone and ends; until then it may read and must not write.
    let status = first.ended(SOON).await?;
    assert!(!status.success(), "{}", first.logged());
    assert!(first.logged().contains("lost the lease"), "{}", first.logged());
    let second_wrote = AuditFilter::new().since(mark).user("second").writes();
    bed.audit_until(&second_wrote, 2, SOON)
        .await
        .context("the audit shows no renewals by the new leader")?;
    // The connection may deliver a request that the stop cut in two. It names the resourceVersion it was decided on, so
    // that the API server refuses it: the second leader has changed every object since.
    let late = bed.audit(&AuditFilter::new().since(mark).user("first").writes())?;
    let status = |entry: &AuditEntry| entry.response_status.as_ref().map_or(0, |status| status.code);
    assert!(late.iter().all(|entry| status(entry) >= 400), "{late:?}");
    assert!(late.len() <= IN_FLIGHT, "it went on writing: {late:?}");
    assert_eq!(holder(&bed, &namespace).await?.as_deref(), Some("second"));
    Ok(())
}

#[tokio::test]
async fn started_before_the_definitions_exist_it_waits_and_says_so() -> Result<()> {
    let bed = ControlPlane::start(Options::default()).await?;
    let namespace = bed.namespace("early").await?;
    let mut operator = Operator::start(&bed, "early", &namespace, &[]).await?;
    let page = operator
        .until_ready(|code, page| code == 503 && page.matches("CustomResourceDefinition").count() == 3)
        .await
        .context("readiness does not say what is missing")?;
    for kind in ["EtcdCluster", "EtcdBackup", "EtcdRestore"] {
        let line = format!("waiting {kind}: ");
        assert!(page.contains(&line), "{page}");
    }
    // The page may be read before the line is written.
    until("the log says so, too", SOON, || async {
        Ok(operator.logged().contains("EtcdCluster").then_some(()))
    })
    .await?;
    assert_eq!(operator.page("/healthz").await?.0, 200, "waiting is no illness");

    bed.apply_crds(&definitions()?).await?;
    operator.until_ready(|code, _| code == 200).await?;
    let clusters = clusters(&bed, &namespace).await?;
    create(&clusters, "c").await?;
    all_observed(&clusters).await
}

#[tokio::test]
async fn objects_stored_under_older_rules_are_told_what_is_wrong_and_hold_nothing_up() -> Result<()> {
    let bed = ControlPlane::start(Options::default()).await?;
    let mut loose = serde_json::to_value(
        crd::all()
            .iter()
            .find(|d| d.spec.names.kind == "EtcdCluster")
            .context("the definition")?,
    )?;
    loose["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    loose["spec"]["versions"][0]["subresources"] = json!({"status": {}});
    bed.apply_crds(&loose.to_string()).await?;
    let namespace = bed.namespace("older").await?;
    // The second one is of a field that rules of admission compute with: its status is refused by the API server.
    let stored = ["bad", "worse"]
        .map(|name| {
            let field = if name == "bad" {
                "paused: often"
            } else {
                "size: three"
            };
            format!(
                "apiVersion: etcd.database.coreos.com/v1beta2\nkind: EtcdCluster\n\
                 metadata: {{name: {name}, namespace: {namespace}}}\nspec: {{{field}}}\n---\n"
            )
        })
        .concat();
    let applied = bed.kubectl_with_input(&["apply", "-f", "-"], &stored).await?;
    assert!(
        applied.status.success(),
        "{}",
        String::from_utf8_lossy(&applied.stderr)
    );
    bed.apply_crds(&definitions()?).await?;

    let mut operator = Operator::start(&bed, "older", &namespace, &[]).await?;
    operator.until_ready(|code, _| code == 200).await?;
    let clusters = clusters(&bed, &namespace).await?;
    create(&clusters, "good").await?;
    let said = |name: &'static str| {
        let (bed, namespace) = (&bed, &namespace);
        async move {
            let template = "{range .status.conditions[?(@.type==\"Accepted\")]}{.status} {.message}{end}";
            let arguments = ["get", "etcdcluster", name, "-n", namespace, "-o"];
            let jsonpath = format!("jsonpath={template}");
            let output = bed.kubectl(&[&arguments[..], &[&jsonpath]].concat()).await?;
            anyhow::Ok(String::from_utf8(output.stdout)?)
        }
    };
    let verdict = until("verdicts", SOON, || async {
        let (good, bad) = (said("good").await?, said("bad").await?);
        Ok((good.starts_with("True") && !bad.is_empty()).then_some(bad))
    })
    .await
    .with_context(|| operator.logged())?;
    assert!(
        verdict.starts_with("False") && verdict.contains("spec.paused"),
        "{verdict}"
    );
    let events: Api<Event> = Api::namespaced(bed.client().await?, &namespace);
    until("an Event about the one without a status", SOON, || async {
        let all = events.list(&ListParams::default()).await?.items;
        let is_it = |e: &Event| {
            e.regarding.as_ref().and_then(|r| r.name.as_deref()) == Some("worse")
                && e.note.as_ref().is_some_and(|note| note.contains("spec.size"))
        };
        Ok(all.iter().any(is_it).then_some(()))
    })
    .await
    .with_context(|| operator.logged())?;

    let corrected = stored.replace("three", "3").replace("often", "false");
    bed.kubectl_with_input(&["apply", "-f", "-"], &corrected).await?;
    until("they are taken up when they are corrected", SOON, || async {
        let (bad, worse) = (said("bad").await?, said("worse").await?);
        Ok((bad.starts_with("True") && worse.starts_with("True")).then_some(()))
    })
    .await
}

#[tokio::test]
async fn an_object_nested_deeper_than_can_be_read_is_told_so_and_holds_nothing_up() -> Result<()> {
    let bed = bed_with_definitions().await?;
    let namespace = bed.namespace("deep").await?;
    let nested = format!("{}{{}}{}", r#"{"a":"#.repeat(200), "}".repeat(200));
    let deep = format!(
        r#"{{"apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
             "metadata": {{"name": "deep", "namespace": "{namespace}"}},
             "spec": {{"size": 3, "pod": {{"patch": {nested}}}}}}}"#
    );
    let create_deep = async || {
        let created = bed.kubectl_with_input(&["create", "-f", "-"], &deep).await?;
        anyhow::ensure!(
            created.status.success(),
            "{}",
            String::from_utf8_lossy(&created.stderr)
        );
        Ok(())
    };
    let mut operator = Operator::start(&bed, "deep", &namespace, &[]).await?;
    let clusters = clusters(&bed, &namespace).await?;
    let served = async |name: &str| {
        until(&format!("{name} is served"), SOON, || async {
            let cluster = clusters.get(name).await?;
            Ok(cluster
                .status
                .filter(|s| s.observed_generation.is_some_and(|seen| seen > 0))
                .map(drop))
        })
        .await
        .with_context(|| operator.logged())
    };
    // Once in the middle of a watch, once in the list of a process that starts.
    create(&clusters, "before").await?;
    served("before").await?;
    create_deep().await?;
    create(&clusters, "after").await?;
    served("after").await?;

    let events: Api<Event> = Api::namespaced(bed.client().await?, &namespace);
    until("it is told so, on itself or by an Event", SOON, || async {
        let arguments = [
            "get",
            "etcdcluster",
            "deep",
            "-n",
            &namespace,
            "-o",
            "jsonpath={.status}",
        ];
        let status = bed.kubectl(&arguments).await?;
        let on_itself = String::from_utf8_lossy(&status.stdout).contains("nested too deeply");
        let all = events.list(&ListParams::default()).await?.items;
        let by_event = all.iter().any(|e| {
            e.regarding.as_ref().and_then(|r| r.name.as_deref()) == Some("deep")
                && e.note
                    .as_ref()
                    .is_some_and(|note| note.contains("nested too deeply"))
        });
        println!("on itself: {on_itself}, by an Event: {by_event}");
        Ok((on_itself || by_event).then_some(()))
    })
    .await
    .with_context(|| operator.logged())?;

    operator.send(Sent::Terminate)?;
    operator.ended(SOON).await?;
    let mut second = Operator::start(&bed, "deep-again", &namespace, &[]).await?;
    second
        .until_ready(|code, page| code == 200 && page.contains("lease: leading"))
        .await?;
    create(&clusters, "later").await?;
    until("a cluster of after the start is served", SOON, || async {
        let cluster = clusters.get("later").await?;
        Ok(cluster
            .status
            .filter(|s| s.observed_generation.is_some_and(|seen| seen > 0))
            .map(drop))
    })
    .await
    .with_context(|| second.logged())
}
