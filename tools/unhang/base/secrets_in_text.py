"""Finds passwords, tokens and keys in text: by what stands around a value, and by the form that the one who issues it documents. Values in, values out.

Text is masked as it was read, before anything is escaped or cut: a key in PEM spans lines, and an escape would hide where it ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

MASK = "<secret>"
LONGEST_KEPT, MOST_KEPT = 400, 20_000  # characters of a text whose answer is kept, and how many: nodes of a fleet say the same

# Whole blocks, and the lines of one of which the first line is missing: \n may stand there as two characters, as in JSON.
_HEAD, _END = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----", r"-----END [A-Z0-9 ]{0,40}-----"
_BLOCK = re.compile(rf"{_HEAD}(?:.{{0,20000}}?{_END}|(?:\\n|[\s\w+/=:,.-]){{0,20000}})", re.DOTALL)
_LONE_LINE = re.compile(r"(?m)^(?=[^\n]{0,80}[a-z])(?=[^\n]{0,80}[A-Z])(?=[^\n]{0,80}[0-9+])[ \t]{0,16}[A-Za-z0-9+/]{60,76}={0,2}[ \t]*$")

# Forms that the issuer documents.
_ISSUED = (
    r"hf_[A-Za-z0-9]{10,80}", r"api_org_[A-Za-z]{30,40}", r"nvapi-[\w-]{20,120}", r"gh[pousr]_[A-Za-z0-9]{20,255}", r"github_pat_\w{20,120}",
    r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent|ffct|oas)-[\w.-]{16,80}", r"GR1348941[\w-]{20}", r"sk-[A-Za-z0-9_-]{16,200}",
    r"(?:sk|rk|pk)_(?:live|test|prod)_[A-Za-z0-9]{10,120}",
    r"whsec_[\w+/=]{20,80}", r"gsk_[A-Za-z0-9]{20,80}", r"r8_[A-Za-z0-9]{20,60}", r"pplx-[A-Za-z0-9]{20,80}", r"xox[abeoprs]-[\w-]{10,250}",
    r"xapp-[\w-]{10,250}", r"xoxe\.xox[bp]-[\w-]{10,250}", r"SG\.[\w-]{15,30}\.[\w-]{30,60}", r"(?:pub)?key-[0-9a-f]{32}", r"npm_[A-Za-z0-9]{36}",
    r"pypi-AgE[\w-]{40,250}", r"do[oprt]_v1_[0-9a-f]{40,80}", r"dckr_(?:pat|oat)_[\w-]{20,80}", r"tskey-[\w-]{16,90}", r"dapi[0-9a-f]{32}(?:-\d)?",
    r"dp\.(?:pt|st|ct|sa)\.[\w.]{30,80}", r"AGE-SECRET-KEY-1[A-Z0-9]{40,80}", r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}", r"AIza[\w-]{35}",
    r"ya29\.[\w.-]{20,400}", r"GOCSPX-[\w-]{20,40}", r"1//0[\w-]{30,120}", r"LTAI[A-Za-z0-9]{12,30}", r"AKID[A-Za-z0-9]{20,40}",
    r"[\w~.-]{3}\dQ~[\w~.-]{30,40}", r"hv[sbr]\.[\w-]{20,250}", r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,70}", r"ATATT3[\w=-]{40,250}",
    r"glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}", r"glc_[A-Za-z0-9+/=]{30,250}", r"NRAK-[A-Z0-9]{27}", r"NRII-[\w-]{32}", r"NRJS-[0-9a-f]{19}",
    r"lin_api_[A-Za-z0-9]{30,60}",
    r"ntn_[A-Za-z0-9]{30,60}", r"secret_[A-Za-z0-9]{40,50}", r"PMAK-[0-9a-f-]{30,70}", r"rubygems_[0-9a-f]{48}", r"sntry[su]_[\w+/=-]{30,250}",
    r"figd_[\w-]{30,60}", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}", r"sq0(?:csp|atp)-[\w-]{20,50}", r"pat-(?:na|eu)\d-[0-9a-f-]{36}", r"sgp_[\w]{30,90}",
    r"ops_eyJ[\w=-]{50,2000}", r"local-[0-9a-f]{40}", r"wandb_v\d_[\w-]{20,120}", r"eyJ[\w-]{10,2000}\.[\w-]{10,4000}(?:\.[\w-]{0,2000}){0,3}",
    r"A3(?:-[A-Z0-9]{5,11}){5,6}", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}", r"AKCp[A-Za-z0-9]{69}", r"cmVmdGtu[A-Za-z0-9]{56}", r"ABSK[A-Za-z0-9+/]{100,300}={0,2}",
    r"bedrock-api-key-[\w+/=.-]{20,2000}", r"4b1d[A-Za-z0-9]{38}", r"CLOJARS_[a-z0-9]{60}", r"v1\.0-[0-9a-f]{24}-[0-9a-f]{146}", r"dnkey-[\w=-]{26}-[\w=-]{52}",
    r"sl\.(?:u\.)?[\w=-]{100,2000}", r"duffel_(?:test|live)_[\w=-]{43}", r"dt0[a-z]\d\d\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{64}", r"EZ[AT]K[A-Za-z0-9]{54}",
    r"EAA[MC][A-Za-z0-9]{100,400}", r"EAAA[\w-]{56,64}", r"FLWSECK(?:_TEST)?-[\w-]{12,60}", r"fo1_[\w-]{43}", r"fm[12][ar]?_[\w+/=]{100,2000}",
    r"fio-u-[\w=-]{64}",
    r"eyJrIjoi[A-Za-z0-9+/=]{60,400}", r"ZXlK[A-Za-z0-9+/]{60,4000}={0,2}", r"HRKU-AA[\w-]{58}", r"pat\.[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}",
    r"ico-[A-Za-z0-9]{32}", r"s-s4t2(?:ud|af)-[0-9a-f]{64}", r"sha256~[\w-]{43}", r"pscale_(?:tkn|oauth|pw)_[\w=.-]{32,64}", r"pnu_[A-Za-z0-9]{36}",
    r"pul-[0-9a-f]{40}", r"rdme_[a-z0-9]{70}", r"tk-us-[\w-]{48}", r"xkeysib-[0-9a-f]{64}-[A-Za-z0-9]{16}", r"sm_(?:aat|pat|sat)_[A-Za-z0-9]{16}",
    r"shippo_(?:live|test)_[0-9a-fA-F]{40}", r"tfp_[\w.=-]{59}", r"s\.(?=\w{0,23}\d)(?=\w{0,23}[A-Z])(?=\w{0,23}[a-z])[A-Za-z0-9]{24}", r"\d{8,10}:AA[\w-]{33}",
    r"SK[0-9a-f]{32}", r"API-[A-Z0-9]{26}", r"AQVN[\w-]{35,38}", r"t1\.[\w-]{5,400}={0,2}\.[\w-]{86}={0,2}", r"A{19,22}[A-Za-z0-9%]{80,100}",
    r"p8e-[A-Za-z0-9]{32}",
    r"access-(?:sandbox|development|production)-[0-9a-f-]{36}", r"\w{6}_\w{29}_mmk", r"\d{15,16}\|[\w-]{27}", r"(?:live|test)_[0-9a-f]{35}",
    r"[0-9a-f]{32}-us\d{1,2}",
    r"(?:sc|ext|scauth|authress)_[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[_-][a-z0-9-]{10,32}\.[\w+/=-]{30,120}",
    r"(?:b3BlbnNzaC1rZXktdj|LS0tLS1CRUdJTi|MII[BCEJ][A-Za-z0-9])[A-Za-z0-9+/=\\\s]{30,20000}", r"[a-z0-9]{6}\.[a-z0-9]{16}",
)  # fmt: skip
_FORMS = re.compile(rf"\b(?:{'|'.join(_ISSUED)})(?![\w-])")
# (what stays, what goes): found by what stands before a value.
_BEFORE = (
    (r"\b(?:proxy-)?authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:(?:bearer|basic|token|apikey|negotiate|digest|aws4-hmac-sha256)\s+)?", r"[^\s\"',]{6,4000}"),
    (r"\b(?:bearer|basic) (?=\S{0,400}[0-9A-Z=])", r"[\w.~+/=-]{12,4000}"),
    (r"\b(?:set-)?cookie[\"']?:\s{0,3}[\"']?", r"[^\n\"']{6,4000}"),
    (r"hooks\.slack\.com/(?:services|workflows|triggers)/", r"[\w/-]{10,200}"),
    (r"discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/", r"[\w/-]{10,200}"),
    (r"[\w-]{1,60}\.(?:webhook\.office\.com|logic\.azure\.com)[^\s\"'?]{0,40}/", r"[^\s\"']{20,400}"),
    (r"\b_gitlab_session=", r"[0-9a-z]{32}\b"),
    (r"\bBUNDLE_\w{1,80}[=:]\s?", r"[0-9a-f]{8}:[0-9a-f]{8}\b"),
    (r"\bkey=[\"']\w{0,40}password[\"']\s{0,4}value=[\"']", r"[^\"'\n]{3,200}"),
    (r"api\.telegram\.org/bot", r"\d{5,15}:[\w-]{20,60}"),
    (r"[?&]x-(?:amz|goog)-(?:signature|credential|security-token)=", r"[^\s&\"']{8,4000}"),
    (r"[?&](?:signature|sig|key|token|access_token|code|auth|apikey|api_key)=", r"[^\s&\"']{8,2000}"),
    (r"://", r"[^\s/@:\"']{0,80}:[^\s/@\"']{1,200}(?=@)"),
    (r"https?://", r"[^\s/@:\"'.]{16,200}(?=@)"),
    (r"\bcurl\b[^\n]{0,400}?\s(?:-u|--user|--proxy-user)[ =]?[\"']?", r"[^\s\"':]{1,80}:[^\s\"']{1,200}"),
    (
        r"\b(?:sshpass|(?:docker|podman) login|mysql\w{0,8}|mariadb\w{0,8}|redis-cli|ldapsearch|ipmitool)\b[^\n]{0,300}?\s-(?:p|a|w) ?[\"']?",
        r"[^\s\"'-][^\s\"']{2,200}",
    ),
    (r"\blogin\s{1,4}\S{1,80}\s{1,4}password\s{1,4}", r"\S{1,200}"),
    (r"\bwandb\b.{0,40}?\b", r"[0-9a-f]{40}\b"),
    (r"\b(?:cryptkey|(?:rd\.)?luks\.key)=", r"\S{1,400}"),
    (r"\bsmbclient\b[^\n]{0,200}?\s(?:-U|--user)[ =]?[^\s%]{1,80}%", r"\S{1,200}"),
    (r"\b(?:bindpw|rootpw|requirepass|masterauth|aws_secret_access_key|aws_session_token)\s?[:=]?\s{1,8}", r"[^\s\"']{4,400}"),
    (r"\b(?:az login|htpasswd)\b[^\n]{0,300}?\s(?:-p|-\w{0,3}b\w{0,3}\s{1,4}\S{1,200}\s{1,4}\S{1,80})\s{1,4}", r"[^\s\"'-]\S{2,200}"),
    (r"\bopenssl\b[^\n]{0,300}?\s-(?:k|pass(?:in|out)?)\s{1,4}(?:pass:)?", r"(?!file:|env:|stdin|fd:)[^\s\"'-]\S{2,200}"),
    (r"^[ \t]{0,8}password[ \t]{1,4}", r"(?=\S{0,80}\d)[^\s\"']{6,200}(?=[ \t]{0,8}$)"),
    (r"(?:(?<![a-z])|(?<=storage))pass=[\"']?", r"(?=\S{0,80}\d)[^\s\"',;&]{6,200}"),
    (r"(?<!\w)pwd[\"']?\s?[:=]\s?[\"']?", r"(?=\S{0,80}\d)[^\s\"',;&/~.$]{6,200}"),
    (r"\bx-[a-z-]{2,30}-key:\s?", r"[^\s\"']{8,400}"),
    (r"\$(?:2[aby]|5|6|y|gy)\$", r"[\w./=,$-]{20,200}"),
    (r"\b(?:wpa_)?psk\s?=\s?[\"']?", r"[^\s\"']{8,64}"),
    (r"\buser\s?=\s?[\"'][^\s:\"']{1,60}:", r"[^\s\"']{4,200}"),
    (r"\bmc\s+alias\s+set(?:\s+\S{1,200}){3}\s+", r"\S{8,200}"),
    (r"\bsudo\s[^\n|]{0,80}<<<\s?[\"']?", r"[^\s\"']{3,200}"),
    (r"\becho\s+(?:-n\s+)?[\"']?(?:\w{1,32}:)?", r"[^\s\"'|:]{4,200}(?=[\"']?\s*\|\s*(?:sudo|chpasswd|passwd|kinit|cryptsetup|docker login|podman login)\b)"),
)
_AROUND = tuple(re.compile(f"({before})({value})", re.IGNORECASE | re.MULTILINE) for before, value in _BEFORE)

# A name that says that its value is a secret, and the value: after = or :, also on the next line, or after a blank for an option.
_WORDS = r"password passwd passphrase passcode secret credential token (?<=[_.-])(?:pwd|pass|pat)(?![a-z]) (?<=[\"'])auth(?![a-z])"
_KEYS = (
    "api access private account shared encryption signing ssh auth master deploy subscription license service consumer app storage session luks munge host "
    "client"
)
_NAME = rf"[\w.-]{{0,60}}?(?:{'|'.join(_WORDS.split())}|(?:{'|'.join(_KEYS.split())})[_.-]?key)s?(?:[_.-]?data)?[\w.-]{{0,30}}"
_BETWEEN = r"[\"']?\s{0,3}(?:=>|:=|[=:])[ \t]{0,3}(?:[|>][+-]?)?(?:\\n|\n)?[ \t]{0,16}|(?<=\w)\s{1,3}"
_VALUE = r"\"[^\"\n]{1,4000}\"|'[^'\n]{1,4000}'|[^\s\"',;&|)}\]]{1,4000}"
_NAMED = re.compile(rf"(?<![\w.-])(?P<name>{_NAME})(?P<between>{_BETWEEN})(?P<value>{_VALUE})", re.IGNORECASE)

# Names of settings of models and of files with secrets; the tokens of a language model are no secrets.
_COUNTED = (
    "max min num n pad eos bos eot unk sep cls mask total new prompt completion input output per next special cache cached stop start end image video audio "
    "media global local first last each avg mean ignore padding text visual decode prefill generated draft bonus"
)
_OF_TOKENS = (
    r"id ids count len length limit type index idx budget rate size url uri file path name class per num throughput embed\w* dispatch\w* drop\w* permut\w* "
    r"level mask mixing shift parallel choice healing dim expir\w* ttl endpoint bucket batch group usage lora pool\w* wise"
)
_OF_KEYS = "file path name dir ref arn id length len type hash policy prompt provider store manager size version env enabled required cache rotation"
_NO_SECRET_NAME = re.compile(
    rf"tokeni[sz]|tokens(?![a-z])|(?<![a-z])(?:{'|'.join(_COUNTED.split())})[_.-]?tokens?(?![a-z])|tokens?[_.-]?(?:{'|'.join(_OF_TOKENS.split())})(?![a-z])"
    rf"|(?:key|secret|password|passwd|credential|token)s?[_.-]?(?:{'|'.join(_OF_KEYS.split())})(?![a-z])|(?:host|client|session|app|license|service)[_.-]?key$",
    re.IGNORECASE,
)

# Values that are none: placeholders, expressions, paths, numbers, words of a sentence or of a type.
_SENTENCE = (
    "none null nil true false yes no on off unset set not is was are were be has have had to for from in of and or the a an that this with by at as it if "
    "str string bytes int dict list optional any object class type field required missing invalid expired incorrect wrong empty default auto provided given "
    "hidden redacted masked authentication authorization auth denied failed failure error ok unknown unsupported found loaded used using will must should "
    "could can cannot may login prompt file env environment variable here below above rejected accepted changed manager store mismatch validation "
    "verification refresh request response header management service server generated value key name length count id plugin provider support exchange "
    "rotation only when while"
)
_OF_A_SENTENCE = f"(?:{'|'.join(_SENTENCE.split())})"
_NO_SECRET = re.compile(
    r"<.*|\$[({].*|\$[A-Z_]{2,}|%\(.*|%[sr]|[({\[].*|\*+|(?:[a-z_]\w{0,60}\.)*[a-z_]\w{0,60}[\[(].*|(?:self|os|args|cfg|config|settings|process|environ|kwargs)\.[\w.()\[\]]*|x{3,}|\.{2,}|-+"
    rf"|~?\.{{0,2}}(?:/[a-z0-9_.-]{{1,40}}){{2,}}/?|[a-z]:\\.*|-?\d{{1,6}}(?:\.\d{{1,6}})?[kmb%]?s?|{_OF_A_SENTENCE}(?:[ .:]+{_OF_A_SENTENCE})*[.!?:]?",
    re.IGNORECASE,
)


# Cheap questions first: a page has a hundred thousand texts, and hardly one has a secret.
_MAY_BE_AROUND = re.compile(
    r"(?i)auth|bearer|basic |cookie|hooks\.|webhook|azure|telegram|[?&]|://|curl|pass|login|mysql|maria|redis|ldap|ipmi|wandb|key=|-key:|pw|psk|aws_s|openssl"
    r"|smbclient|\$[256yg]|alias|echo |user ?=|<<<|_session=|bundle_"
)
_MAY_BE_NAMED = re.compile(r"(?i)pass|secret|credential|token|key|pwd|pat|auth")
_MAY_BE_ISSUED = re.compile(r"[\w.+/=~-]{20}")


def without_secrets(text: str) -> str:
    """`text` with everything masked that looks like a password, a token or a key, and nothing else. Masking again changes nothing."""
    return _kept(text) if len(text) <= LONGEST_KEPT else _masked(text)


def _masked(text: str) -> str:
    if "-----BEGIN" in text:
        text = _BLOCK.sub(MASK, text)
    if _MAY_BE_AROUND.search(text):
        for pattern in _AROUND:
            text = pattern.sub(_masked_behind, text)
    if _MAY_BE_ISSUED.search(text):
        text = _LONE_LINE.sub(MASK, _FORMS.sub(_masked_form, text))
    return _NAMED.sub(_masked_value, text) if _MAY_BE_NAMED.search(text) else text


_kept = lru_cache(MOST_KEPT)(_masked)


def masked_document(value: Any) -> Any:
    """The same for every text in a document of JSON; keys stay."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, Mapping):
        return {key: _of_key(key, one) for key, one in value.items()}
    return [masked_document(one) for one in value] if isinstance(value, (list, tuple)) else value


def _of_key(key: str, value: Any) -> Any:
    """A text whose key says that it is a secret, as its key would in a line."""
    if not isinstance(value, str) or not _MAY_BE_NAMED.search(key):
        return masked_document(value)
    return without_secrets(f"{key}={value}").removeprefix(f"{key}=") if len(value.split()) == 1 else without_secrets(value)


def _masked_behind(found: re.Match[str]) -> str:
    return found[0] if found[2].startswith((MASK, "$", "%s", "{")) else found[1] + MASK


def _masked_form(found: re.Match[str]) -> str:
    """A form without a prefix (kubeadm's token) must hold digits and letters, or it would be a file's name."""
    text = found[0]
    if len(text) == 23 and text[6] == "." and not (re.search(r"\d", text[7:]) and re.search(r"[a-z]", text[7:]) and not text[7:].isalpha()):
        return text
    return MASK


def _masked_value(found: re.Match[str]) -> str:
    name, between, value = found["name"], found["between"], found["value"]
    quote = value[:1] if value[:1] in "\"'" else ""
    bare = value.strip("\"'")
    by_blank = not between.strip(" \t\"'")
    if by_blank and not name.startswith("-"):
        return found[0]  # a word in a sentence: "the password was wrong"
    if MASK in value or len(bare) < 3 or _NO_SECRET_NAME.search(name) or _NO_SECRET.fullmatch(bare) or (by_blank and bare.startswith("-")):
        return found[0]
    if "token" in name.lower() and (len(bare) < 6 or (bare.isalpha() and bare.islower())):
        return found[0]
    return f"{name}{between}{quote}{MASK}{quote}"
