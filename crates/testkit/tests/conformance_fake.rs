//! Every conformance case against the fake, one test each.

#![allow(clippy::unwrap_used, reason = "a test may end at the first surprise")]

use std::sync::Arc;

use etcd_operator_testkit::conformance::{Env, cases, prepare, run_case};
use etcd_operator_testkit::{Fake, every_conformance_case};
use futures::FutureExt as _;
use futures::future::BoxFuture;

struct FakeEnv(Fake);

impl Env for FakeEnv {
    fn forget_history(&self) -> Option<BoxFuture<'_, ()>> {
        Some(async { self.0.compact() }.boxed())
    }
}

async fn check(name: &str) {
    let fake = Fake::new();
    let client = fake.client("default");
    prepare(&client).await.unwrap();
    let all = cases();
    let case = all.iter().find(|case| case.name == name).unwrap();
    let line = run_case(case, &client, Arc::new(FakeEnv(fake)), "conformance-000").await;
    if let Err(broken) = line.outcome {
        panic!("{broken}\n\n{}", line.transcript.join("\n"));
    }
}

macro_rules! tests {
    ($($module:ident :: $case:ident,)+) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $case() {
                check(stringify!($case)).await;
            }
        )+
    };
}

every_conformance_case!(tests);
