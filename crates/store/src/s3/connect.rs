//! From settings and Secrets to a client of S3: who asks, where, in which region, and whom it trusts.

use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::imds::region::ImdsRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileCredentialsProvider;
#[expect(
    deprecated,
    reason = "the new names are of a crate that would be a dependency for them alone"
)]
use aws_config::profile::profile_file::{ProfileFileKind, ProfileFiles};
use aws_config::provider_config::ProviderConfig;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    BehaviorVersion, Builder, Credentials, Region, RequestChecksumCalculation, ResponseChecksumValidation,
    SharedCredentialsProvider, SharedHttpClient, StalledStreamProtectionConfig,
};
use aws_sdk_s3::types::{ServerSideEncryption, StorageClass};
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};

use super::S3;
use super::profile::{self, Identity, Profile};
use crate::net::CONNECT;
use crate::port::{Kind, Place};
use crate::secret::{BadConfig, Censor, Secret};
use crate::trust::Trust;

const SECRET: &str = "s3.awsSecret";
const CA_SECRET: &str = "s3.caSecret";

/// The region of stores that have none.
const NO_REGION: &str = "us-east-1";

/// The profile the older operator read.
const DEFAULT_PROFILE: &str = "default";

/// Encryption by the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// With keys that the store keeps.
    Aes256,
    /// With the default key of the key management service.
    Kms,
}

/// A bucket of S3, as users describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct S3Config {
    /// The bucket.
    pub bucket: String,
    /// The endpoint with its scheme, where it is not Amazon's. Plain HTTP is spoken only if it says `http://`.
    pub endpoint: Option<String>,
    /// Puts the bucket into the path instead of the host name.
    pub path_style: bool,
    /// The region; it wins over the Secret's.
    pub region: Option<String>,
    /// Encryption by the store.
    pub encryption: Option<Encryption>,
    /// The storage class of new objects.
    pub storage_class: Option<String>,
    /// The profile in the Secret's files, where it is not `default`.
    pub profile: Option<String>,
    /// The Secret with the private authority of the endpoint, in the key `ca.crt`.
    pub ca: Option<Secret>,
}

impl S3 {
    /// Makes a client. Nothing is sent, but to find out the region where nobody says it.
    pub async fn new(config: &S3Config, secret: Option<&Secret>) -> Result<Self, BadConfig> {
        let endpoint = config.endpoint.as_deref().map(check_endpoint).transpose()?;
        let is_amazon = endpoint.is_none_or(is_amazon);
        let http = http_client(config.ca.as_ref())?;
        let name = config.profile.as_deref().unwrap_or(DEFAULT_PROFILE);
        let profile = match secret {
            Some(secret) => profile::read(SECRET, secret, name)?,
            None => Profile {
                identity: Identity::Platform,
                region: None,
            },
        };
        let region = region(config, &profile, is_amazon, &http).await?;
        let censor = censor(&profile.identity);
        let provider = credentials(&profile.identity, name, &region, &http).await;
        let slow = std::time::Duration::from_secs(30);
        let mut builder = Builder::new()
            .behavior_version(BehaviorVersion::latest())
            .http_client(http)
            .region(Region::new(region))
            .credentials_provider(provider)
            .force_path_style(config.path_style)
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::builder().connect_timeout(CONNECT).build())
            .stalled_stream_protection(
                StalledStreamProtectionConfig::enabled()
                    .grace_period(slow)
                    .build(),
            )
            // Every store of this protocol checks MD5, which we send. The newer sums are not understood everywhere, and
            // where they are, an upload that was not begun with one cannot be completed of parts that carry it.
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired);
        if let Some(endpoint) = endpoint {
            builder = builder.endpoint_url(endpoint);
        }
        Ok(Self {
            client: Client::from_conf(builder.build()),
            place: Place {
                kind: Kind::S3,
                bucket: config.bucket.clone(),
                endpoint: endpoint.unwrap_or_default().to_owned(),
            },
            encryption: config.encryption.map(|encryption| match encryption {
                Encryption::Aes256 => ServerSideEncryption::Aes256,
                Encryption::Kms => ServerSideEncryption::AwsKms,
            }),
            class: config.storage_class.as_deref().map(StorageClass::from),
            keeps_conditions: is_amazon,
            censor,
        })
    }
}

fn check_endpoint(endpoint: &str) -> Result<&str, BadConfig> {
    let example = "for example: https://minio.example.com:9000";
    let uri: http::Uri = endpoint
        .parse()
        .map_err(|_| BadConfig::new("s3.endpoint", format!("is no address; {example}")))?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_user = uri
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'));
    if !is_http || uri.host().is_none_or(str::is_empty) || has_user || uri.query().is_some() {
        let problem =
            format!("must begin with https:// or http:// and name a host, without user or query; {example}");
        return Err(BadConfig::new("s3.endpoint", problem));
    }
    Ok(endpoint.trim_end_matches('/'))
}

fn is_amazon(endpoint: &str) -> bool {
    let host = endpoint
        .parse::<http::Uri>()
        .ok()
        .and_then(|uri| uri.host().map(str::to_owned));
    host.is_some_and(|host| {
        [".amazonaws.com", ".amazonaws.com.cn", ".api.aws"]
            .iter()
            .any(|end| host.ends_with(end))
    })
}

fn http_client(ca: Option<&Secret>) -> Result<SharedHttpClient, BadConfig> {
    let trust = Trust::new(CA_SECRET, ca)?;
    let store = TrustStore::empty().with_pem_certificate(trust.pem());
    let context = TlsContext::builder()
        .with_trust_store(store)
        .build()
        .map_err(|error| BadConfig::new(CA_SECRET, crate::net::last(&error)))?;
    Ok(aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .tls_context(context)
        .build_https())
}

/// What the user says, else the Secret, else the machine, else that there is none outside Amazon.
async fn region(
    config: &S3Config,
    profile: &Profile,
    is_amazon: bool,
    http: &SharedHttpClient,
) -> Result<String, BadConfig> {
    if let Some(region) = config.region.clone().or_else(|| profile.region.clone()) {
        return Ok(region);
    }
    if !is_amazon {
        return Ok(NO_REGION.to_owned());
    }
    let machine = ProviderConfig::without_region().with_http_client(http.clone());
    let chain = RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new())
        .or_else(ImdsRegionProvider::builder().configure(&machine).build());
    let found = chain.region().await;
    found.map(|region| region.to_string()).ok_or_else(|| {
        let problem =
            "must be set: neither the Secret's config nor the machine says it; for example: eu-central-1";
        BadConfig::new("s3.region", problem)
    })
}

fn censor(identity: &Identity) -> Censor {
    match identity {
        Identity::Keys { secret, token, .. } => Censor::new(
            [secret.reveal()]
                .into_iter()
                .chain(token.as_ref().map(crate::secret::Hidden::reveal)),
        ),
        Identity::Role { credentials, .. } => Censor::new([credentials.reveal()]),
        Identity::Platform => Censor::default(),
    }
}

async fn credentials(
    identity: &Identity,
    name: &str,
    region: &str,
    http: &SharedHttpClient,
) -> SharedCredentialsProvider {
    let machine = ProviderConfig::without_region()
        .with_http_client(http.clone())
        .with_region(Some(Region::new(region.to_owned())));
    match identity {
        Identity::Keys { id, secret, token } => {
            let token = token.as_ref().map(|token| token.reveal().to_owned());
            let keys = Credentials::new(id, secret.reveal(), token, None, "the Secret");
            SharedCredentialsProvider::new(keys)
        }
        #[expect(deprecated, reason = "as above")]
        Identity::Role { credentials, config } => {
            let files = ProfileFiles::builder()
                .with_contents(ProfileFileKind::Credentials, credentials.reveal())
                .with_contents(ProfileFileKind::Config, config.reveal())
                .build();
            let role = ProfileFileCredentialsProvider::builder()
                .configure(&machine)
                .profile_files(files)
                .profile_name(name)
                .build();
            SharedCredentialsProvider::new(role)
        }
        Identity::Platform => {
            let chain = DefaultCredentialsChain::builder()
                .configure(machine)
                .build()
                .await;
            SharedCredentialsProvider::new(chain)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_need_a_scheme_and_a_host_and_nothing_secret() {
        for bad in [
            "minio:9000",
            "ftp://a",
            "https://",
            "https://user:pw@a",
            "https://a/?x=1",
            "",
        ] {
            let refused = check_endpoint(bad).expect_err(bad);
            assert_eq!(refused.setting, "s3.endpoint", "{bad}");
            assert!(!refused.to_string().contains("pw@"));
        }
        assert_eq!(
            check_endpoint("http://minio:9000/").expect("good"),
            "http://minio:9000"
        );
    }

    #[test]
    fn amazon_is_known_by_its_names_only() {
        assert!(is_amazon("https://s3.eu-west-1.amazonaws.com"));
        assert!(is_amazon("https://s3.cn-north-1.amazonaws.com.cn"));
        assert!(!is_amazon("https://amazonaws.com.example.org"));
        assert!(!is_amazon("https://minio:9000"));
    }

    #[tokio::test]
    async fn nobody_prints_a_secret() {
        let files = "[default]\naws_access_key_id = AKIAX\naws_secret_access_key = hunter2hunter2\naws_session_token = tokentoken\n";
        let data = [("credentials".to_owned(), files.as_bytes().to_vec())];
        let secret = Secret::from(std::collections::BTreeMap::from(data));
        let config = S3Config {
            bucket: "b".into(),
            region: Some("x-1".into()),
            ..S3Config::default()
        };
        let port = S3::new(&config, Some(&secret)).await.expect("a client");
        let printed = format!("{port:?} {config:?} {secret:?}");
        assert!(
            !printed.contains("hunter2") && !printed.contains("tokentoken"),
            "{printed}"
        );
    }
}
