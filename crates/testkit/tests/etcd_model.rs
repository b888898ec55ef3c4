//! The model of etcd: every case of the list that real etcd passes, on every minor; and the same run from the same seed.

use etcd_operator_etcd::policy::newest;
use etcd_operator_etcd::version::Minor;
use etcd_operator_testkit::etcd::conformance::{ModelBed, cases};

#[tokio::test(start_paused = true)]
async fn the_model_passes_every_case_of_the_list_on_every_minor_and_seed() {
    for case in cases() {
        for minor in case.minors {
            for seed in 0..5 {
                println!("{} on {minor} with {seed}", case.name);
                case.run(&ModelBed::new(newest(*minor), seed)).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_run_byte_for_byte() {
    let mut texts = Vec::new();
    for seed in [7, 7, 8] {
        let bed = ModelBed::new(newest(Minor::V3_6), seed);
        let all = cases();
        let case = all
            .iter()
            .find(|case| case.name.starts_with("a_member_is_replaced"));
        case.expect("there is such a case").run(&bed).await;
        texts.push(bed.etcds.timeline().text());
    }
    assert!(texts[0].len() > 500, "{}", texts[0]);
    assert_eq!(texts[0], texts[1]);
    assert_ne!(texts[0], texts[2]);
}
