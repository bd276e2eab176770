"""Django's settings, from one `ControlConfig`; nothing else here reads the environment."""

import os
from importlib import resources
from pathlib import Path
from typing import Any

from csp import constants as csp
from django.templatetags.static import static

from control.config import ControlConfig, Database
from control.db.connection import TimeoutConnection
from control.telemetry.logging import logging_settings

CONFIG = ControlConfig.from_environment(os.environ)
"""The process's configuration; `django.conf.settings.CONFIG` everywhere else."""

BASE_DIR = Path(__file__).resolve().parent
WEB_DIR = Path(str(resources.files("web")))
"""The console's package, wherever it is installed. It is named, not imported: it is a layer
above."""

SECRET_KEY = CONFIG.secret_key
DEBUG = CONFIG.debug
ALLOWED_HOSTS = [CONFIG.console_host, CONFIG.host, "127.0.0.1", "localhost", "[::1]"]
CSRF_TRUSTED_ORIGINS = [CONFIG.console_url]

INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",
    "unfold.contrib.filters",
    "unfold.contrib.forms",
    "control.apps.OperatorSiteConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.usersessions",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_htmx",
    "pgtrigger",
    "control.apps.ControlAppConfig",
    "control.apps.ApiConfig",
    "control.apps.AccountsConfig",
    "control.apps.OrganizationsConfig",
    "control.apps.OperatorsConfig",
    "control.apps.ApiKeysConfig",
    "control.apps.CatalogConfig",
    "control.apps.PricingConfig",
    "control.apps.LimitsConfig",
    "control.apps.AuditConfig",
    "control.apps.MailConfig",
    "control.apps.AlarmsConfig",
    "control.apps.OutboxConfig",
    "control.apps.FeedConfig",
    "control.apps.DataplaneConfig",
    "control.apps.WebhooksConfig",
    "control.apps.SsoConfig",
    "control.apps.DataRequestsConfig",
    # The layers above are named, not imported: control depends on none of them.
    "billing.ledger",
    "billing.credit",
    "billing.metering",
    "billing.following",
    "billing.payments",
    "billing.reading",
    "billing.economics",
    "billing.alerts",
    "billing.invoicing",
    "billing.collection",
    "billing.cockpit",
    "web.console",
]
INTERNAL_URLS = [
    "control.dataplane.internal_api",
    "billing.internal_urls",
]
"""URLs for the data plane, under /internal/v1/ and on the internal listener only."""
FEED_RECORDS = "control.feed_records.build_records"
"""Builds the records that `control.feed.services.publish` publishes for a FeedRef."""
API_URLS = ["billing.api_urls"]
"""URLs that the layers above add to the management API, under /api/v1/."""
PUBLIC_URLS = ["billing.payments.urls"]
"""URLs that need no sign-in and authenticate their callers themselves."""
CONSOLE_URLS = "web.console.urls"

MIDDLEWARE = [
    "control.middleware.request_middleware",
    "control.middleware.CompressionMiddleware",
    "control.middleware.SecurityHeadersMiddleware",
    "control.dataplane.authentication.require_credential",
    "control.middleware.reject_null_bytes",
    "django.middleware.security.SecurityMiddleware",
    "servestatic.middleware.ServeStaticMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "control.reauthentication.OperatorSessionMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "control.drafts.middleware.DraftMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "control.reauthentication.StepUpMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "control.urls"
ASGI_APPLICATION = "control.asgi.application"
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [WEB_DIR / "templates", BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "builtins": ["control.drafts.origin"],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "web.console.theme.theme",
                "web.console.account.account",
            ],
        },
    }
]


def _postgresql(database: Database, **options: object) -> dict[str, Any]:
    return {
        "ENGINE": "control.db.postgresql",
        "NAME": database.name,
        "USER": database.user,
        "PASSWORD": database.password,
        "HOST": database.host,
        "PORT": database.port,
        # A pooled connection is checked before each use, so a restart of PostgreSQL costs one
        # reconnection and no failed request; without PostgreSQL a request fails in 3 s, not 30.
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {"connect_timeout": 3, **database.options, **options},
    }


DATABASES: dict[str, dict[str, Any]] = {
    "default": _postgresql(
        CONFIG.database,
        pool={
            "min_size": 1,
            "max_size": 20,
            "timeout": 10.0,  # commands and tasks; control.server sets what a request waits
            "reconnect_timeout": 10,
            "connection_class": TimeoutConnection,
        },
    ),
    # The same database as the owner of its tables, for migrations and archives, never for services.
    "owner": _postgresql(CONFIG.database_owner),
}

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = [
    "allauth.account.auth_backends.AuthenticationBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
# Passwords hashed by the others are verified, and rehashed at the next sign-in.
PASSWORD_HASHERS = [
    "control.accounts.models.Argon2Hasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
# Counts of rate limits: in Redis for all processes, or in each while Redis is unavailable.
CACHES = {
    "default": {
        "BACKEND": "control.cache.FallbackCache",
        "LOCATION": CONFIG.redis_url,
        "KEY_PREFIX": "penstock_control",
    }
}
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/"
ACCOUNT_ADAPTER = "control.sso.adapter.SsoAccountAdapter"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_EMAIL_VERIFICATION = "mandatory"
ACCOUNT_LOGIN_ON_EMAIL_CONFIRMATION = True
ACCOUNT_PREVENT_ENUMERATION = True
ACCOUNT_SESSION_REMEMBER = True
# Email addresses need it too, not only factors: a stolen session could add an address and reset the
# password.
ACCOUNT_REAUTHENTICATION_REQUIRED = True
ACCOUNT_EMAIL_NOTIFICATIONS = True
# Wrong passwords and codes are counted by `control.accounts.login_attempts`.
ACCOUNT_RATE_LIMITS = {
    "login": None,
    "login_failed": None,
    "reset_password": "20/m/ip,5/h/key",
    "device_link": "20/m/ip,5/h/key",
    "sso": "120/m/ip",
    "draft": "120/m/ip",
}
MFA_ADAPTER = "control.accounts.mfa.MfaAdapter"
MFA_SUPPORTED_TYPES = ["webauthn", "totp", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_WEBAUTHN_USER_VERIFICATION = "required"
MFA_RATE_LIMITS = {"webauthn_login": "60/m/ip"}
MFA_FORMS = {
    form: f"control.accounts.mfa.{ours}"
    for form, ours in (
        ("add_webauthn", "PasskeyCreateForm"),
        ("authenticate_webauthn", "PasskeyAuthenticateForm"),
        ("login_webauthn", "PasskeyLoginForm"),
        ("reauthenticate_webauthn", "PasskeyReauthenticateForm"),
        ("authenticate", "MfaCodeForm"),
        ("reauthenticate", "MfaReauthenticateForm"),
    )
}
# Browsers let a page without TLS use passkeys on the machine itself only, as `localhost`.
MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = not CONFIG.is_https
MFA_TOTP_ISSUER = "Penstock"
EMAIL_BACKEND = CONFIG.mail_server.backend
EMAIL_TIMEOUT = 10
ANYMAIL = {**CONFIG.mail_server.anymail, "REQUESTS_TIMEOUT": EMAIL_TIMEOUT}
DEFAULT_FROM_EMAIL = CONFIG.from_email
EMAIL_HOST = CONFIG.mail_server.host
EMAIL_PORT = CONFIG.mail_server.port
EMAIL_HOST_USER = CONFIG.mail_server.user
EMAIL_HOST_PASSWORD = CONFIG.mail_server.password
EMAIL_USE_TLS = CONFIG.mail_server.use_tls
EMAIL_USE_SSL = CONFIG.mail_server.use_ssl

# Cookies are marked secure if browsers use TLS; plain http on one machine works too.
SESSION_COOKIE_SECURE = CONFIG.is_https
CSRF_COOKIE_SECURE = CONFIG.is_https
SESSION_COOKIE_HTTPONLY = True
CSRF_COOKIE_HTTPONLY = True
CSRF_FAILURE_VIEW = "control.drafts.middleware.csrf_failure"
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_NAME = "penstock_session"
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if CONFIG.is_https else 0
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [csp.NONE],
        "script-src": [csp.SELF],
        "style-src": [csp.SELF],
        "img-src": [csp.SELF, "data:"],
        "font-src": [csp.SELF],
        "connect-src": [csp.SELF],
        "manifest-src": [csp.SELF],
        "form-action": [csp.SELF],
        "frame-ancestors": [csp.NONE],
        "base-uri": [csp.NONE],
    }
}
"""The policy of every page; `control.middleware` lists the exceptions."""
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 2**20

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = True
LOCALE_PATHS = [WEB_DIR / "locale"]
FORMAT_MODULE_PATH = "control.formats"

STATIC_URL = "/static/"
STATICFILES_DIRS = [WEB_DIR / "static"]
STATIC_ROOT = CONFIG.static_dir
# With a static folder, control fills it with hashed, compressed files when it starts;
# without one they are served from the source folders.
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "servestatic.storage.CompressedManifestStaticFilesStorage"
        if STATIC_ROOT
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
SERVESTATIC_USE_FINDERS = STATIC_ROOT is None
SERVESTATIC_AUTOREFRESH = DEBUG
SERVESTATIC_ALLOW_ALL_ORIGINS = False

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "control.api_keys.authentication.KeyAuthentication",
        "control.api.policies.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["control.api.policies.StrictJSONParser"],
    "DEFAULT_PAGINATION_CLASS": "control.api.pagination.Pagination",
    "DEFAULT_SCHEMA_CLASS": "control.api.schema.Schema",
    "DEFAULT_THROTTLE_CLASSES": ["control.api.policies.CallerThrottle"],
    "DEFAULT_METADATA_CLASS": "control.api.policies.Metadata",
    "EXCEPTION_HANDLER": "control.api.errors.exception_handler",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
OPERATOR_AUTHENTICATION = "control.operators.authentication.OperatorTokenAuthentication"
"""The authentication of callers of the operators' API, under /api/v1/admin/."""
SPECTACULAR_SETTINGS = {
    "TITLE": "Penstock management API",
    "DESCRIPTION": "Organizations, projects, API keys, members and models, by session or by an "
    "API key with the scope `manage`; and, under `/api/v1/admin/`, what operators do, by an "
    "operator token.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        "DeliveryState": ["waiting", "delivered", "failed"],
        "InvoiceState": ["open", "overdue", "disputed", "paid", "written_off", "void"],
    },
}

UNFOLD = {
    "SITE_TITLE": "Penstock",
    "SITE_HEADER": "Penstock",
    "SITE_SUBHEADER": "Operator",
    "SITE_URL": "/",
    "SITE_FAVICONS": [
        {
            "rel": "icon",
            "type": "image/svg+xml",
            "href": lambda request: static("console/mark.svg"),
        }
    ],
    "STYLES": [lambda request: static("control/admin.css")],
    "SHOW_BACK_BUTTON": True,
    "DASHBOARD_CALLBACK": "control.dashboard.dashboard",
    "SIDEBAR": {
        "show_search": True,
        "show_all_applications": True,
        "navigation": "control.dashboard.navigation",
    },
}

CELERY_BROKER_URL = CONFIG.redis_url
CELERY_TASK_IGNORE_RESULT = True
# Each queue has its own processes (`control.worker`): tasks that wait for Stripe or take minutes
# delay neither billing nor emails and webhooks.
CELERY_TASK_DEFAULT_QUEUE = "general"
CELERY_TASK_ROUTES = {
    "following.check_integrity": "long_jobs",
    "following.finish_days": "long_jobs",
    "audit.verify_chain": "long_jobs",
    "economics.*": "long_jobs",
    "data_requests.*": "long_jobs",
    "credit.*": "books",
    "following.*": "books",
    "invoicing.*": "books",
    "metering.*": "books",
    "outbox.*": "outbox",
}
# A task runs again if its worker died. Every task is idempotent, and ends (240 s, proofs and seals
# 31 minutes) long before the broker would give it to a second worker (two hours).
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_SOFT_TIME_LIMIT = 210
CELERY_TASK_TIME_LIMIT = 240
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 7200, "socket_timeout": 10}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"

LOGGING_CONFIG = "control.telemetry.logging.configure"
LOGGING = logging_settings(CONFIG.log_format, debug=DEBUG)
