//! Runs the conformance checks over TLS with a private CA, and checks that untrusted certificates are
//! rejected. Tests over plain HTTP would not notice a client without TLS support.

use etcd_operator_store::connect::connect;
use etcd_operator_store::platform::Platform;
use etcd_operator_store::testing::{StoreUnderTest, check_all};
use etcd_operator_store::{Class, Key};

use crate::support::{PASSWORD, config, policy, secret_of, store};
use etcd_operator_store::testing::fake::{CertificateAuthority, Dialect, Fake};

async fn check(dialect: Dialect, setting: &str) {
    let authority = CertificateAuthority::for_names(&[]);
    let fake = Fake::start(dialect, Some(&authority)).await;
    assert!(fake.endpoint.starts_with("https://"));
    let trusting = store(dialect, &fake, Some(&authority)).await;
    let tested = StoreUnderTest {
        store: trusting,
        part_size: 1000,
        object_count: 30,
        missing: crate::conformance::missing(dialect),
    };
    check_all(&tested).await;

    let other = CertificateAuthority::for_names(&[]);
    for ca in [None, Some(other.pem.as_str())] {
        let config = config(dialect, &fake.endpoint, ca);
        let secret = secret_of(dialect);
        let store = connect(&config, Some(&secret), &Platform::default(), policy())
            .await
            .expect("a store");
        let before = fake.state().requests.len();
        let key = Key::new("etcd/x").expect("a name");
        let errors = [
            store.head(&key).await.expect_err("untrusted"),
            store.list("etcd").await.expect_err("untrusted"),
            store.begin(&key, 1000).await.expect_err("untrusted"),
        ];
        for error in errors {
            assert_eq!(error.class, Class::TlsUntrusted, "{error}");
            let text = error.to_string();
            assert!(text.contains(setting) && text.contains(&fake.endpoint), "{text}");
            assert!(!text.contains(PASSWORD), "{text}");
        }
        assert_eq!(
            fake.state().requests.len(),
            before,
            "nothing was sent to an untrusted server"
        );
    }
}

#[tokio::test]
async fn s3_over_tls_with_a_private_ca() {
    check(Dialect::S3, "s3.caSecret").await;
}

#[tokio::test]
async fn oss_over_tls_with_a_private_ca() {
    check(Dialect::Oss, "oss.caSecret").await;
}

#[tokio::test]
async fn gcs_over_tls_with_a_private_ca() {
    check(Dialect::Gcs, "gcs.caSecret").await;
}

#[tokio::test]
async fn abs_over_tls_with_a_private_ca() {
    check(Dialect::Abs, "abs.caSecret").await;
}
