//! Creates the S3 client from settings and Secrets: credentials, endpoint, region and trusted certificates.

use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::imds::region::ImdsRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileCredentialsProvider;
#[expect(
    deprecated,
    reason = "the replacements are in a crate that would be an additional dependency"
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
use crate::backend::{Kind, StoreLocation};
use crate::net::CONNECT;
use crate::secret::{InvalidConfig, Redactor, Secret};
use crate::trust::TrustedRoots;

const SECRET_SETTING: &str = "s3.awsSecret";
const CA_SECRET_SETTING: &str = "s3.caSecret";

/// The region for stores that have no regions.
const FALLBACK_REGION: &str = "us-east-1";

/// The profile that the older operator reads.
const DEFAULT_PROFILE: &str = "default";

/// Server-side encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// With keys managed by the store (SSE-S3).
    Aes256,
    /// With the default key of the key management service (SSE-KMS).
    Kms,
}

/// The configuration of an S3 bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct S3Config {
    /// The bucket.
    pub bucket: String,
    /// The endpoint with its scheme, if it is not AWS. Plain HTTP is used only if the endpoint starts with
    /// `http://`.
    pub endpoint: Option<String>,
    /// Uses path-style addressing: the bucket is in the path instead of the host name.
    pub path_style: bool,
    /// The region. Takes precedence over the region in the Secret.
    pub region: Option<String>,
    /// Server-side encryption.
    pub encryption: Option<Encryption>,
    /// The storage class of new objects.
    pub storage_class: Option<String>,
    /// The profile in the files of the Secret, if it is not `default`.
    pub profile: Option<String>,
    /// A Secret with the private CA of the endpoint, in the key `ca.crt`.
    pub ca: Option<Secret>,
}

impl S3 {
    /// Creates a client. Sends no request, except to the metadata service if the region is not configured.
    pub async fn new(config: &S3Config, secret: Option<&Secret>) -> Result<Self, InvalidConfig> {
        let endpoint = config.endpoint.as_deref().map(check_endpoint).transpose()?;
        let is_amazon = endpoint.is_none_or(is_amazon);
        let http = http_client(config.ca.as_ref())?;
        let name = config.profile.as_deref().unwrap_or(DEFAULT_PROFILE);
        let profile = match secret {
            Some(secret) => profile::read_profile(SECRET_SETTING, secret, name)?,
            None => Profile {
                identity: Identity::Platform,
                region: None,
            },
        };
        let region = resolve_region(config, &profile, is_amazon, &http).await?;
        let redactor = redactor_for(&profile.identity);
        let provider = credentials_provider(&profile.identity, name, &region, &http).await;
        let stall_limit = std::time::Duration::from_secs(30);
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
                    .grace_period(stall_limit)
                    .build(),
            )
            // Every S3-compatible store verifies the MD5 that each request carries. Not all of them support
            // the newer checksums. Where they do, an upload that began without one cannot be completed from
            // parts that carry one.
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired);
        if let Some(endpoint) = endpoint {
            builder = builder.endpoint_url(endpoint);
        }
        Ok(Self {
            client: Client::from_conf(builder.build()),
            location: StoreLocation {
                kind: Kind::S3,
                bucket: config.bucket.clone(),
                endpoint: endpoint.unwrap_or_default().to_owned(),
            },
            encryption: config.encryption.map(|encryption| match encryption {
                Encryption::Aes256 => ServerSideEncryption::Aes256,
                Encryption::Kms => ServerSideEncryption::AwsKms,
            }),
            storage_class: config.storage_class.as_deref().map(StorageClass::from),
            supports_conditional_writes: is_amazon,
            redactor,
        })
    }
}

fn check_endpoint(endpoint: &str) -> Result<&str, InvalidConfig> {
    let example = "for example: https://minio.example.com:9000";
    let uri: http::Uri = endpoint
        .parse()
        .map_err(|_| InvalidConfig::new("s3.endpoint", format!("is not an address; {example}")))?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_user = uri
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'));
    if !is_http || uri.host().is_none_or(str::is_empty) || has_user || uri.query().is_some() {
        let problem = format!(
            "must begin with https:// or http:// and contain a host, without user or query; {example}"
        );
        return Err(InvalidConfig::new("s3.endpoint", problem));
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

fn http_client(ca: Option<&Secret>) -> Result<SharedHttpClient, InvalidConfig> {
    let trust = TrustedRoots::new(CA_SECRET_SETTING, ca)?;
    let store = TrustStore::empty().with_pem_certificate(trust.to_pem());
    let context = TlsContext::builder()
        .with_trust_store(store)
        .build()
        .map_err(|error| InvalidConfig::new(CA_SECRET_SETTING, crate::net::root_cause(&error)))?;
    Ok(aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .tls_context(context)
        .build_https())
}

/// The region: from the settings, else from the Secret, else from the environment or metadata service. For
/// stores other than AWS a fallback.
async fn resolve_region(
    config: &S3Config,
    profile: &Profile,
    is_amazon: bool,
    http: &SharedHttpClient,
) -> Result<String, InvalidConfig> {
    if let Some(region) = config.region.clone().or_else(|| profile.region.clone()) {
        return Ok(region);
    }
    if !is_amazon {
        return Ok(FALLBACK_REGION.to_owned());
    }
    let provider_config = ProviderConfig::without_region().with_http_client(http.clone());
    let chain = RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new())
        .or_else(ImdsRegionProvider::builder().configure(&provider_config).build());
    let found = chain.region().await;
    found.map(|region| region.to_string()).ok_or_else(|| {
        let problem =
            "must be set: neither the Secret's config nor the machine provides it; for example: eu-central-1";
        InvalidConfig::new("s3.region", problem)
    })
}

fn redactor_for(identity: &Identity) -> Redactor {
    match identity {
        Identity::Keys { secret, token, .. } => Redactor::new(
            [secret.reveal()]
                .into_iter()
                .chain(token.as_ref().map(crate::secret::SecretString::reveal)),
        ),
        Identity::Role { credentials, .. } => Redactor::new([credentials.reveal()]),
        Identity::Platform => Redactor::default(),
    }
}

async fn credentials_provider(
    identity: &Identity,
    name: &str,
    region: &str,
    http: &SharedHttpClient,
) -> SharedCredentialsProvider {
    let provider_config = ProviderConfig::without_region()
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
                .configure(&provider_config)
                .profile_files(files)
                .profile_name(name)
                .build();
            SharedCredentialsProvider::new(role)
        }
        Identity::Platform => {
            let chain = DefaultCredentialsChain::builder()
                .configure(provider_config)
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
    fn endpoints_need_a_scheme_and_a_host_and_no_credentials() {
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
    fn aws_is_recognized_by_its_host_names() {
        assert!(is_amazon("https://s3.eu-west-1.amazonaws.com"));
        assert!(is_amazon("https://s3.cn-north-1.amazonaws.com.cn"));
        assert!(!is_amazon("https://amazonaws.com.example.org"));
        assert!(!is_amazon("https://minio:9000"));
    }

    #[tokio::test]
    async fn debug_output_contains_no_secret() {
        let files = "[default]\naws_access_key_id = AKIAX\naws_secret_access_key = hunter2hunter2\naws_session_token = tokentoken\n";
        let data = [("credentials".to_owned(), files.as_bytes().to_vec())];
        let secret = Secret::from(std::collections::BTreeMap::from(data));
        let config = S3Config {
            bucket: "b".into(),
            region: Some("x-1".into()),
            ..S3Config::default()
        };
        let backend = S3::new(&config, Some(&secret)).await.expect("a client");
        let printed = format!("{backend:?} {config:?} {secret:?}");
        assert!(
            !printed.contains("hunter2") && !printed.contains("tokentoken"),
            "{printed}"
        );
    }
}
