//! What a Kubernetes API server does, as a list of cases. The same list runs against the fake and against a real
//! server; where they differ the fake is wrong. A case must hold on the real server and say nothing about the fake.

mod apply;
mod apply_lists;
mod builtin;
mod custom;
mod deletion;
mod fences;
mod list;
mod lists;
mod objects;
mod owners;
mod patches;
mod pods;
mod subresources;
mod transcript;
mod watches;
mod widget;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};

pub use self::transcript::{Exchange, comparable};
pub use self::widget::GROUP;
pub use self::wire::{Broken, Outcome, Verdict, Wire};

/// What can be done to a server from outside its API.
pub trait Env: Send + Sync {
    /// Makes the server forget its history, so that older versions can be neither watched nor listed. None where
    /// that cannot be done.
    fn forget_history(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }
}

/// A server about which nothing can be done from outside.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlainEnv;

impl Env for PlainEnv {}

/// One behaviour.
#[derive(Clone, Copy)]
pub struct Case {
    /// The behaviour, as a sentence.
    pub name: &'static str,
    run: fn(Wire) -> BoxFuture<'static, Outcome>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

impl Case {
    /// Runs the case over a wire into a namespace of its own.
    pub async fn run(&self, wire: Wire) -> Outcome {
        (self.run)(wire).await
    }
}

macro_rules! collect {
    ($($module:ident :: $case:ident,)+) => {
        vec![$(Case { name: stringify!($case), run: |wire| Box::pin($module::$case(wire)) },)+]
    };
}

/// Every case.
pub fn cases() -> Vec<Case> {
    crate::every_conformance_case!(collect)
}

/// How one case ended.
#[derive(Debug, Clone)]
pub struct Line {
    /// The behaviour.
    pub name: &'static str,
    /// What came of it.
    pub outcome: Outcome,
    /// What was said, made comparable with other servers.
    pub transcript: Vec<String>,
}

/// How all cases ended.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// One line per case, in the order of the list.
    pub lines: Vec<Line>,
}

impl Report {
    /// The cases that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| line.outcome.is_err())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.failures().count();
        let skipped = self
            .lines
            .iter()
            .filter(|line| line.outcome == Ok(Verdict::Skipped))
            .count();
        let held = self.lines.len() - failed - skipped;
        writeln!(f, "{held} hold, {failed} fail, {skipped} skipped")?;
        for line in self.failures() {
            if let Err(broken) = &line.outcome {
                writeln!(f, "{}\n  {broken}", line.name)?;
            }
        }
        Ok(())
    }
}

/// Makes the kinds the cases use and waits until they are served. Can be done again and by several at once.
pub async fn prepare(client: &Client) -> Result<(), Broken> {
    let broken = |error: kube::Error| Broken(error.to_string());
    for definition in widget::definitions() {
        let api: Api<kube::api::DynamicObject> =
            Api::all_with(client.clone(), &widget::definition_resource());
        let params = PatchParams::apply("conformance-setup").force();
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        api.patch(name, &params, &Patch::Apply(&definition))
            .await
            .map_err(broken)?;
    }
    for plural in ["widgets", "gadgets", "gauges"] {
        let served = async {
            let path = format!("/apis/{GROUP}/v1/{plural}");
            loop {
                let request = http::Request::get(&path)
                    .body(Vec::new())
                    .expect("a constant path is well formed");
                if client.request_text(request).await.is_ok() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let served = tokio::time::timeout(Duration::from_secs(30), served).await;
        served.map_err(|_| Broken(format!("{plural} are not served")))?;
    }
    Ok(())
}

/// Makes the namespace for a case, with the service account pods need.
pub async fn make_namespace(client: &Client, name: &str) -> Result<(), Broken> {
    let params = PatchParams::apply("conformance-setup").force();
    let namespace = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let account =
        serde_json::json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let broken = |error: kube::Error| Broken(error.to_string());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .patch(name, &params, &Patch::Apply(&namespace))
        .await
        .map_err(broken)?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
    accounts
        .patch("default", &params, &Patch::Apply(&account))
        .await
        .map_err(broken)?;
    Ok(())
}

/// Runs one case in a namespace of its own; `prepare` must have been done.
pub async fn run_case(case: &Case, client: &Client, env: Arc<dyn Env>, namespace: &str) -> Line {
    let wire = Wire::new(client.clone(), namespace, env);
    let outcome = match make_namespace(client, namespace).await {
        Ok(()) => case.run(wire.clone()).await,
        Err(broken) => Err(broken),
    };
    Line {
        name: case.name,
        outcome,
        transcript: comparable(&wire.exchanges(), namespace),
    }
}

/// Runs every case, each in a namespace of its own, one after another.
pub async fn run_all(client: Client, env: Arc<dyn Env>) -> Report {
    let mut report = Report::default();
    let prepared = prepare(&client).await;
    for (index, case) in cases().iter().enumerate() {
        let line = match &prepared {
            Ok(()) => run_case(case, &client, Arc::clone(&env), &format!("conformance-{index}")).await,
            Err(broken) => Line {
                name: case.name,
                outcome: Err(broken.clone()),
                transcript: Vec::new(),
            },
        };
        report.lines.push(line);
    }
    report
}
