//! Credentials for OSS: an access key from a Secret or from environment variables, the RAM role of a service
//! account (OIDC), or the RAM role of the machine. Temporary keys are renewed before they expire.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Uri;
use jiff::{SignedDuration, Timestamp};
use reqwest::StatusCode;
use serde::Deserialize;

use super::response::{header, transport_fault};
use super::sign::AccessKey;
use crate::clock;
use crate::error::{Class, Fault};
use crate::error_codes::{ErrorResponse, retry_after};
use crate::net::{self, Proxy};
use crate::platform::Platform;
use crate::secret::{InvalidConfig, Redactor, Secret, SecretString};
use crate::trust::TrustedRoots;

const SECRET_SETTING: &str = "oss.ossSecret";
const METADATA_ENDPOINT: &str = "http://100.100.100.200";
const STS_ENDPOINT: &str = "https://sts.aliyuncs.com";

/// How long before their expiry temporary keys are renewed.
const RENEWAL_MARGIN: SignedDuration = SignedDuration::from_mins(5);

/// How long valid keys are used after a failed renewal before the next one.
const RENEWAL_PAUSE: SignedDuration = SignedDuration::from_secs(30);

/// The timeout of requests to the token and metadata services.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The source of the access keys.
pub(super) enum Identity {
    /// An access key that does not change.
    Fixed(AccessKey),
    /// Temporary keys, requested when needed.
    Temporary {
        source: Source,
        http: reqwest::Client,
        cache: Mutex<KeyCache>,
        /// Held while keys are requested, so that they are requested once.
        renewal: tokio::sync::Mutex<()>,
    },
}

/// A service that issues temporary keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The RAM role of the service account, assumed with the token in a file.
    ServiceAccount {
        sts: String,
        role: String,
        provider: String,
        token_file: String,
    },
    /// The RAM role of the machine, from its metadata service.
    Machine { metadata: String, role: Option<String> },
}

#[derive(Clone, Debug)]
pub(super) struct TemporaryKeys {
    keys: AccessKey,
    expires_at: Timestamp,
}

/// The temporary keys that were issued last.
#[derive(Default)]
pub(super) struct KeyCache {
    issued: Option<TemporaryKeys>,
    /// When a renewal began or failed, if none has succeeded since.
    tried_at: Option<Timestamp>,
}

impl KeyCache {
    /// The keys, unless they must be requested first: they expire soon, or have expired. Shortly after a renewal began or
    /// failed, keys that expire soon are used as well.
    fn usable(&self, now: Timestamp) -> Option<&AccessKey> {
        let was_tried = self.tried_at.is_some_and(|at| now < at + RENEWAL_PAUSE);
        let margin = if was_tried {
            SignedDuration::ZERO
        } else {
            RENEWAL_MARGIN
        };
        let issued = self
            .issued
            .as_ref()
            .filter(|issued| now + margin < issued.expires_at)?;
        Some(&issued.keys)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StsCredentials {
    access_key_id: String,
    access_key_secret: String,
    security_token: String,
    expiration: Timestamp,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AssumeRoleResponse {
    credentials: StsCredentials,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct ErrorBody {
    code: String,
    message: String,
}

impl Identity {
    pub(super) fn new(
        secret: Option<&Secret>,
        platform: &Platform,
        trust: &TrustedRoots,
    ) -> Result<Self, InvalidConfig> {
        if let Some(secret) = secret {
            return Ok(Self::Fixed(AccessKey {
                id: secret.required(SECRET_SETTING, "accessKeyID")?.to_owned(),
                secret: SecretString::new(secret.required(SECRET_SETTING, "accessKeySecret")?),
                token: secret
                    .text(SECRET_SETTING, "securityToken")?
                    .map(SecretString::new),
            }));
        }
        let variable = |name: &str| platform.variable(&format!("ALIBABA_CLOUD_{name}"));
        if let (Some(id), Some(secret)) = (variable("ACCESS_KEY_ID"), variable("ACCESS_KEY_SECRET")) {
            return Ok(Self::Fixed(AccessKey {
                id: id.to_owned(),
                secret: SecretString::new(secret),
                token: variable("SECURITY_TOKEN").map(SecretString::new),
            }));
        }
        let account = (
            variable("ROLE_ARN"),
            variable("OIDC_PROVIDER_ARN"),
            variable("OIDC_TOKEN_FILE"),
        );
        let (source, proxy) = if let (Some(role), Some(provider), Some(token_file)) = account {
            let source = Source::ServiceAccount {
                sts: parse_sts_endpoint(variable("STS_ENDPOINT").unwrap_or(STS_ENDPOINT))?,
                role: role.to_owned(),
                provider: provider.to_owned(),
                token_file: token_file.to_owned(),
            };
            (source, Proxy::FromEnvironment)
        } else {
            let metadata = platform.metadata.as_deref().unwrap_or(METADATA_ENDPOINT);
            let source = Source::Machine {
                metadata: metadata.to_owned(),
                role: variable("ECS_METADATA").map(str::to_owned),
            };
            (source, Proxy::None)
        };
        Ok(Self::Temporary {
            source,
            http: net::http_client(trust, proxy)?,
            cache: Mutex::default(),
            renewal: tokio::sync::Mutex::default(),
        })
    }

    /// A redactor for the fixed keys. Temporary keys are not known in advance; OSS does not repeat them in
    /// its errors.
    pub(super) fn redactor(&self) -> Redactor {
        match self {
            Self::Fixed(keys) => Redactor::new(
                [keys.secret.reveal()]
                    .into_iter()
                    .chain(keys.token.as_ref().map(SecretString::reveal)),
            ),
            Self::Temporary { .. } => Redactor::default(),
        }
    }

    /// Access keys that stay valid for the next minutes.
    pub(super) async fn keys(&self) -> Result<AccessKey, Fault> {
        let (source, http, cache, renewal) = match self {
            Self::Fixed(keys) => return Ok(keys.clone()),
            Self::Temporary {
                source,
                http,
                cache,
                renewal,
            } => (source, http, cache, renewal),
        };
        if let Some(keys) = lock(cache).usable(clock::now()) {
            return Ok(keys.clone());
        }
        let _renewal = renewal.lock().await;
        {
            // Another request may have renewed them meanwhile.
            let (mut cache, now) = (lock(cache), clock::now());
            if let Some(keys) = cache.usable(now) {
                return Ok(keys.clone());
            }
            cache.tried_at = Some(now);
        }
        let answer = source.fetch_keys(http).await;
        let mut cache = lock(cache);
        match answer {
            Ok(issued) => {
                cache.tried_at = None;
                Ok(cache.issued.insert(issued).keys.clone())
            }
            Err(fault) => {
                let now = clock::now();
                cache.tried_at = Some(now);
                let keys = cache.usable(now).cloned();
                keys.ok_or_else(|| fault.into_identity_fault())
            }
        }
    }
}

fn lock(cache: &Mutex<KeyCache>) -> MutexGuard<'_, KeyCache> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Parses the address of STS, which receives the service account's token. Without a scheme it is HTTPS.
fn parse_sts_endpoint(text: &str) -> Result<String, InvalidConfig> {
    let text = text.trim();
    let address = if text.contains("://") {
        text.to_owned()
    } else {
        format!("https://{text}")
    };
    let address = address.trim_end_matches('/').to_owned();
    let uri = address.parse::<Uri>().ok();
    let is_http = |uri: &Uri| matches!(uri.scheme_str(), Some("https" | "http"));
    match uri.filter(is_http) {
        Some(uri) if !net::is_readable_in_transit(&uri) => Ok(address),
        _ => {
            let problem = "must begin with https://, because the service account's token could be read in transit, or be the \
                           host alone; for example: sts.cn-hangzhou.aliyuncs.com";
            Err(InvalidConfig::new("ALIBABA_CLOUD_STS_ENDPOINT", problem))
        }
    }
}

impl Source {
    async fn fetch_keys(&self, http: &reqwest::Client) -> Result<TemporaryKeys, Fault> {
        let issued = match self {
            Self::ServiceAccount {
                sts,
                role,
                provider,
                token_file,
            } => assume_role(http, sts, role, provider, token_file).await?,
            Self::Machine { metadata, role } => {
                fetch_from_metadata_service(http, metadata, role.as_deref()).await?
            }
        };
        Ok(TemporaryKeys {
            keys: AccessKey {
                id: issued.access_key_id,
                secret: SecretString::new(issued.access_key_secret),
                token: Some(SecretString::new(issued.security_token)),
            },
            expires_at: issued.expiration,
        })
    }
}

async fn assume_role(
    http: &reqwest::Client,
    sts: &str,
    role: &str,
    provider: &str,
    token_file: &str,
) -> Result<StsCredentials, Fault> {
    let token = tokio::fs::read_to_string(token_file).await.map_err(|error| {
        Fault::new(
            Class::Credentials,
            format!("cannot read the service account's token: {error}"),
        )
    })?;
    let redactor = Redactor::new([token.trim()]);
    let time = clock::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let fields = [
        ("Action", "AssumeRoleWithOIDC"),
        ("Format", "JSON"),
        ("Version", "2015-04-01"),
        ("RoleArn", role),
        ("OIDCProviderArn", provider),
        ("OIDCToken", token.trim()),
        ("RoleSessionName", "etcd-operator"),
        ("Timestamp", &time),
        ("SignatureNonce", &clock::random_token()),
    ];
    let pairs = fields.map(|(name, value)| format!("{name}={}", crate::key::percent_encode(value, false)));
    let request = http
        .post(format!("{sts}/"))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(pairs.join("&"));
    let answer = send(request, &redactor).await?;
    let assumed: AssumeRoleResponse = parse_keys(&answer.into_text(&redactor)?)?;
    Ok(assumed.credentials)
}

async fn fetch_from_metadata_service(
    http: &reqwest::Client,
    metadata: &str,
    role: Option<&str>,
) -> Result<StsCredentials, Fault> {
    let redactor = Redactor::default();
    let request = http
        .put(format!("{metadata}/latest/api/token"))
        .header("x-aliyun-ecs-metadata-token-ttl-seconds", "21600");
    let answer = send(request, &redactor).await?;
    let is_refused = answer.status.is_client_error();
    let token = match answer.into_text(&redactor) {
        Ok(token) => Some(token),
        // Old machines do not issue this token and do not require it.
        Err(fault) if is_refused && !fault.class.is_worth_retrying() => None,
        Err(fault) => return Err(fault),
    };
    let get = |path: String| {
        let request = http.get(format!(
            "{metadata}/latest/meta-data/ram/security-credentials/{path}"
        ));
        match &token {
            Some(token) => request.header("x-aliyun-ecs-metadata-token", token),
            None => request,
        }
    };
    let role = if let Some(role) = role {
        role.to_owned()
    } else {
        let answer = send(get(String::new()), &redactor).await?;
        answer.into_text(&redactor)?.trim().to_owned()
    };
    let answer = send(get(crate::key::percent_encode(&role, false)), &redactor).await?;
    parse_keys(&answer.into_text(&redactor)?)
}

/// An answer with any status.
struct Answer {
    status: StatusCode,
    retry_after: Option<Duration>,
    text: String,
}

impl Answer {
    /// The text of a success, else the fault.
    fn into_text(self, redactor: &Redactor) -> Result<String, Fault> {
        if self.status.is_success() {
            return Ok(self.text);
        }
        let body: ErrorBody = serde_json::from_str(&self.text).unwrap_or_default();
        let response = ErrorResponse {
            status: self.status.as_u16(),
            code: body.code,
            message: body.message,
            region: None,
            retry_after: self.retry_after,
        };
        Err(response.fault(redactor))
    }
}

async fn send(request: reqwest::RequestBuilder, redactor: &Redactor) -> Result<Answer, Fault> {
    let answer = async {
        let response = request.send().await?;
        Ok::<_, reqwest::Error>(Answer {
            status: response.status(),
            retry_after: retry_after(header(&response, "retry-after")),
            text: response.text().await?,
        })
    };
    tokio::time::timeout(TIMEOUT, answer)
        .await
        .map_err(|_| Fault::new(Class::TimedOut, format!("no response within {TIMEOUT:?}")))?
        .map_err(|error| transport_fault(error, redactor))
}

/// Does not include the text of the parser error, which could quote the keys.
fn parse_keys<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|_| {
        Fault::new(
            Class::Credentials,
            "the response of the platform contains no complete access key",
        )
    })
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(keys) => f.debug_tuple("Fixed").field(keys).finish(),
            Self::Temporary { source, .. } => f.debug_tuple("Temporary").field(source).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_account_s_token_is_sent_over_https_or_within_the_machine() {
        for (text, expected) in [
            (STS_ENDPOINT, "https://sts.aliyuncs.com"),
            (
                "sts-vpc.cn-hangzhou.aliyuncs.com/",
                "https://sts-vpc.cn-hangzhou.aliyuncs.com",
            ),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ] {
            assert_eq!(parse_sts_endpoint(text), Ok(expected.to_owned()));
        }
        for text in [
            "http://sts.aliyuncs.com",
            "HTTP://sts.aliyuncs.com",
            "http://10.0.0.1",
            "ftp://sts.aliyuncs.com",
            "https://",
        ] {
            let refused = parse_sts_endpoint(text).expect_err(text);
            assert_eq!(refused.setting, "ALIBABA_CLOUD_STS_ENDPOINT");
        }
    }

    #[test]
    fn keys_are_renewed_before_they_expire_and_used_until_then_if_that_fails() {
        let expiry: Timestamp = "2026-11-28T12:00:00Z".parse().expect("a time");
        let before = |seconds| expiry - SignedDuration::from_secs(seconds);
        let mut cache = KeyCache::default();
        assert_eq!(cache.usable(before(600)), None);
        cache.issued = Some(TemporaryKeys {
            keys: AccessKey {
                id: "STS.1".into(),
                secret: SecretString::new("secret"),
                token: None,
            },
            expires_at: expiry,
        });
        let is_usable = |cache: &KeyCache, seconds| cache.usable(before(seconds)).is_some();
        assert!(is_usable(&cache, 301));
        assert!(!is_usable(&cache, 300), "it is time to renew them");
        cache.tried_at = Some(before(300));
        assert!(is_usable(&cache, 299) && is_usable(&cache, 271));
        assert!(!is_usable(&cache, 270), "it is time to try again");
        cache.tried_at = Some(before(1));
        assert!(!is_usable(&cache, 0), "they have expired");
    }
}
