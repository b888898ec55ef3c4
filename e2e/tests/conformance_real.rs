//! Every conformance case against a real API server, one test each: the list that the fake is held to, unchanged.
//!
//! A case has to hold, and the fake has to say the same in every answer. Where it does not, the fake is wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::control_plane::{self, Access, ControlPlane, Options};
use etcd_operator_testkit::conformance::{Case, Env, Line, PlainEnv, Verdict, cases, prepare, run_case};
use etcd_operator_testkit::{Fake, every_conformance_case};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
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
