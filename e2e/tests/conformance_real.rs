//! Every conformance case against a real API server, one test each: the list that the fake is held to, unchanged.
//!
//! A case has to hold, and the fake has to say the same in every answer. Where it does not, the fake is wrong.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use etcd_operator_api::crd;
use etcd_operator_e2e::control_plane::{self, Access, ControlPlane, Options};
use etcd_operator_testkit::conformance::{Case, Env, Line, PlainEnv, Verdict, cases, prepare, run_case};
use etcd_operator_testkit::samples::{Leaf, leaves, seeds};
use etcd_operator_testkit::{Fake, every_conformance_case};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// A control plane of one case's own, whose API server can be restarted.
struct RealEnv(ControlPlane);

impl Env for RealEnv {
    fn forget_history(&self) -> Option<BoxFuture<'_, ()>> {
        let forgotten = async {
            self.0
                .forget_history()
                .await
                .expect("the control plane starts again");
        };
        Some(forgotten.boxed())
    }
}

struct FakeEnv(Fake);

impl Env for FakeEnv {
    fn forget_history(&self) -> Option<BoxFuture<'_, ()>> {
        Some(async { self.0.compact() }.boxed())
    }
}

/// Cases are about answers as they come: this client does not try again by itself.
async fn plain_client(bed: &ControlPlane) -> Result<Client> {
    let mut config = bed.config_with(&Access::admin()).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

async fn on_the_shared_bed(case: &Case) -> Result<Line> {
    static PREPARED: OnceCell<()> = OnceCell::const_new();
    static CASES: AtomicUsize = AtomicUsize::new(1);
    let bed = control_plane::shared().await?;
    let client = plain_client(bed).await?;
    PREPARED.get_or_try_init(|| prepare(&client)).await?;
    let namespace = format!("conformance-{:03}", CASES.fetch_add(1, Ordering::Relaxed));
    Ok(run_case(case, &client, Arc::new(PlainEnv), &namespace).await)
}

/// For a case that disturbs others: forgetting restarts the API server.
async fn on_a_bed_of_its_own(case: &Case) -> Result<Line> {
    let bed = ControlPlane::start(Options::default()).await?;
    let client = plain_client(&bed).await?;
    prepare(&client).await?;
    Ok(run_case(case, &client, Arc::new(RealEnv(bed)), "conformance-000").await)
}

async fn on_the_fake(case: &Case) -> Result<Line> {
    let fake = Fake::new();
    let client = fake.client("default");
    prepare(&client).await?;
    Ok(run_case(case, &client, Arc::new(FakeEnv(fake)), "conformance-000").await)
}

async fn check(name: &str) -> Result<()> {
    let all = cases();
    let case = all
        .iter()
        .find(|case| case.name == name)
        .context("no such case")?;
    let mut real = on_the_shared_bed(case).await?;
    if real.outcome == Ok(Verdict::Skipped) {
        real = on_a_bed_of_its_own(case).await?;
    }
    let verdict = real.outcome.clone().with_context(|| real.transcript.join("\n"))?;
    ensure!(
        verdict == Verdict::Holds,
        "{name} asks for more than forgetting history"
    );
    let fake = on_the_fake(case).await?;
    let differences: Vec<_> = real
        .transcript
        .iter()
        .zip(&fake.transcript)
        .filter(|(real, fake)| real != fake)
        .map(|(real, fake)| format!("real  {real}\nfake  {fake}"))
        .collect();
    ensure!(
        differences.is_empty() && real.transcript.len() == fake.transcript.len(),
        "the fake answers otherwise:\n{}\n{} and {} answers",
        differences.join("\n"),
        real.transcript.len(),
        fake.transcript.len()
    );
    Ok(())
}

macro_rules! tests {
    ($($module:ident :: $case:ident,)+) => {
        $(
            #[tokio::test]
            async fn $case() -> Result<()> {
                check(stringify!($case)).await
            }
        )+
    };
}

every_conformance_case!(tests);

/// Values no leaf takes without a word: of a wrong type, empty, out of range, of no known form.
fn odd_values() -> [Value; 6] {
    [
        json!(""),
        json!(" /:"),
        json!(-1),
        json!(99_999_999_999_i64),
        json!(["x"]),
        json!(null),
    ]
}

/// What a server makes of a new object: the code, the spec, and what it says against it.
async fn judgement(client: &Client, path: &str, object: &Value) -> Result<Value> {
    let request = http::Request::post(format!("{path}?dryRun=All"))
        .header("content-type", "application/json")
        .body(Body::from(object.to_string().into_bytes()))?;
    let response = client.send(request).await?;
    let code = response.status().as_u16();
    let body: Value = serde_json::from_slice(&response.into_body().collect_bytes().await?)?;
    let told = body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let causes: BTreeSet<String> = told.iter().map(ToString::to_string).collect();
    Ok(json!({"code": code, "spec": body["spec"], "reason": body["reason"], "causes": causes}))
}

#[tokio::test]
async fn objects_of_our_kinds_are_judged_alike() -> Result<()> {
    let bed = control_plane::shared().await?;
    let real = plain_client(bed).await?;
    let fake = Fake::new();
    let documents: Vec<_> = crd::all()
        .iter()
        .map(serde_json::to_string)
        .collect::<Result<_, _>>()?;
    bed.apply_crds(&documents.join("\n---\n")).await?;
    for definition in crd::all() {
        fake.register(&definition);
    }
    let fake = fake.client("default");
    let group = format!("{}/{}", etcd_operator_api::GROUP, etcd_operator_api::VERSION);
    let mut objects = Vec::new();
    for definition in crd::all() {
        let names = definition.spec.names;
        let path = format!("/apis/{group}/namespaces/default/{}", names.plural);
        let wishes = leaves(&crd::schema(&names.kind).context("a schema")?);
        let seeds = seeds(&names.kind);
        // A cluster template has the schema of a cluster, which is asked about already.
        let asked = |leaf: &&Leaf| leaf.is_within("spec") && !leaf.is_within("spec.clusterTemplate");
        for (number, leaf) in wishes.iter().filter(asked).enumerate() {
            let seed = &seeds[number % seeds.len()];
            let values = leaf.samples().iter().take(2).cloned().chain(odd_values());
            // The real server takes a list for a time, and then fails in whatever rule reads it.
            let is_time = |value: &Value| value.as_str().is_some_and(|text| text.ends_with("00Z"));
            let judged = values.filter(|value| !(value.is_array() && leaf.samples().iter().any(is_time)));
            objects.extend(judged.map(|value| (path.clone(), leaf.with(seed, &value, 0))));
        }
    }
    ensure!(objects.len() > 2000, "only {} objects", objects.len());
    let judged = objects.iter().map(|(path, object)| {
        let (real, fake) = (&real, &fake);
        async move {
            let (real, fake) = (
                judgement(real, path, object).await?,
                judgement(fake, path, object).await?,
            );
            anyhow::Ok((real != fake).then(|| format!("{}\nreal  {real}\nfake  {fake}", object["spec"])))
        }
    });
    let differences: Vec<Option<String>> = futures::stream::iter(judged).buffered(8).try_collect().await?;
    let differences: Vec<String> = differences.into_iter().flatten().collect();
    ensure!(
        differences.is_empty(),
        "{} of {} differ:\n{}",
        differences.len(),
        objects.len(),
        differences.join("\n")
    );
    Ok(())
}
