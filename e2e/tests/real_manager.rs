//! A whole manager against a real API server: every object gets its verdict, and then nothing more is written. The
//! same for five minutes is the scenario `manager/` of the full tier.

mod crowd;

use std::time::Duration;

use anyhow::Result;

#[tokio::test]
async fn every_object_gets_its_verdict_through_one_watch_per_kind_and_then_nothing_is_written() -> Result<()>
{
    let seen = crowd::play(Duration::from_secs(15)).await?;
    println!("{seen:#?}");
    crowd::check(&seen)
}
