"""Finds passwords, tokens and keys in text: by what is around a value, and by the form that the
one who issues it documents. Values in, values out.

Text is masked as it was read, before anything is escaped or cut: a key in PEM spans lines, and an
escape would hide where it ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from operator import ne
from typing import Any

from unhang.core.quotes import leading_words

MASK = "<secret>"
_NAME_AND_VALUE = """name value
Name Value
key value
Key Value
ParameterKey ParameterValue
path value"""
_PAIRS = [line.split() for line in _NAME_AND_VALUE.split("\n")]
LONGEST_BEGINNING, LONGEST_IN_A_TAG = 120, 1_002  # characters by which a value is judged
# characters of a text whose answer is kept, and how many: nodes of a fleet say the same
LONGEST_KEPT, MOST_KEPT = 400, 20_000

# Whole blocks, and the lines of one of which the first line is missing: \n may be there as two
# characters, as in JSON.
_HEAD = r"-----BEGIN (?:[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?|OpenVPN Static key V1)-----"
_END = r"-----END [A-Za-z0-9 ]{0,40}-----"
_BLOCK = re.compile(
    rf"{_HEAD}(?:.{{0,20000}}?{_END}|(?:\\+[nr]|[\s\w+/=:,.-]){{0,20000}})", re.DOTALL
)
_LONE_LINE = re.compile(
    r"(?m)^(?=[^\n]{0,80}[a-z])(?=[^\n]{0,80}[A-Z])(?=[^\n]{0,80}[0-9+])["
    r" \t]{0,16}[A-Za-z0-9+/]{60,76}={0,2}[ \t]*$"
)

# Forms that the issuer documents and that do not look drawn by lot (see _WORD), or are too short
# for that.
_ISSUED = r"""
    hf_[A-Za-z0-9]{10,80} AIza[\w-]{35} ya29\.[\w.-]{20,400} api_org_[A-Za-z]{30,40}
    nvapi-[\w-]{20,120} gh[pousr]_[A-Za-z0-9]{20,255} github_pat_\w{20,120}
    gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent|ffct|oas)-[\w.-]{16,80} GR1348941[\w-]{20}
    sk-[A-Za-z0-9_-]{16,200} (?:sk|rk|pk)_(?:live|test|prod)_[A-Za-z0-9]{10,120}
    xox[abeoprs]-[\w-]{10,250} xapp-[\w-]{10,250} xoxe\.xox[bp]-[\w-]{10,250}
    SG\.[\w-]{15,30}\.[\w-]{30,60} (?:pub)?key-[0-9a-f]{32} do[oprt]_v1_[0-9a-f]{40,80}
    dckr_(?:pat|oat)_[\w-]{20,80} tskey-[\w-]{16,90} dapi[0-9a-f]{32}(?:-\d)?
    dp\.(?:pt|st|ct|sa)\.[\w.]{30,80} AGE-SECRET-KEY-1[A-Z0-9]{40,80}
    (?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16} GOCSPX-[\w-]{20,40} 1//0[\w-]{30,120}
    LTAI[A-Za-z0-9]{12,30} AKID[A-Za-z0-9]{20,40} [\w~.-]{3}\dQ~[\w~.-]{30,40}
    hv[sbr]\.[\w-]{20,250} [A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,70} glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}
    glc_[A-Za-z0-9+/=]{30,250} NRAK-[A-Z0-9]{27} NRII-[\w-]{32} NRJS-[0-9a-f]{19}
    PMAK-[0-9a-f-]{30,70} rubygems_[0-9a-f]{48} sntry[su]_[\w+/=-]{30,250}
    shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32} pat-(?:na|eu)\d-[0-9a-f-]{36} local-[0-9a-f]{40}
    wandb_v\d_[\w-]{20,120} eyJ[\w-]{10,2000}\.[\w-]{10,4000}(?:\.[\w-]{0,2000}){0,3}
    A3(?:-[A-Z0-9]{5,11}){5,6} pat[A-Za-z0-9]{14}\.[0-9a-f]{64} bedrock-api-key-[\w+/=.-]{20,2000}
    v1\.0-[0-9a-f]{24}-[0-9a-f]{146} dt0[a-z]\d\d\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{64}
    fm[12][ar]?_[\w+/=]{100,2000} eyJrIjoi[A-Za-z0-9+/=]{60,400}
    pat\.[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20} s-s4t2(?:ud|af)-[0-9a-f]{64} pul-[0-9a-f]{40}
    rdme_[a-z0-9]{70} xkeysib-[0-9a-f]{64}-[A-Za-z0-9]{16} shippo_(?:live|test)_[0-9a-fA-F]{40}
    s\.(?=\w{0,23}\d)(?=\w{0,23}[A-Z])(?=\w{0,23}[a-z])(?!\w{0,18}[a-z]{6})[A-Za-z0-9]{24}
    \d{8,10}:AA[\w-]{33} SK[0-9a-f]{32} API-[A-Z0-9]{26} A{19,22}[A-Za-z0-9%]{80,100}
    access-(?:sandbox|development|production)-[0-9a-f-]{36} [0-9a-f]{32}-us\d{1,2}
    (?:sc|ext|scauth|authress)_[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[_-][a-z0-9-]{10,32}\.[\w+/=-]{30,120}
    (?:b3BlbnNzaC1rZXktdj|LS0tLS1CRUdJTi|MII[BCEJ][A-Za-z0-9])[A-Za-z0-9+/=\\\s]{30,20000}
    [a-z0-9]{6}\.[a-z0-9]{16} rpa_[A-Za-z0-9]{30,60} lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}
    sbp_[0-9a-f]{40} GOOG1?[A-Z0-9]{20,61} MUNGE:[A-Za-z0-9+/=]{20,4000}
"""
# A word that looks drawn by lot, as most tokens do: digits, both cases, and a change of kind at two
# letters of five. A name in camel case changes less often; a symbol (_Z, _R), JSON in base64 (eyJ),
# a public key (AAAA) and a fingerprint are no secrets, nor is what is in a path. Chinese words,
# which come beside it without a blank, are not part of it.
_WORD = re.compile(
    r"(?<![\w+/@%-])(?<!SHA256:)(?!_[ZR]|eyJ|AAAA)[\w-]{24,2000}(?![\w+/@-]|\.\w)", re.ASCII
)  # words of a sentence without blanks are not part of it
_MIXED, _SHORTEST_DRAWN, _SHORTEST_PART, _FEWEST_CASES = 0.4, 22, 10, 4
_FORMS = re.compile(rf"\b(?:{'|'.join(_ISSUED.split())})(?![\w-])")
# (what stays, what goes): found by what comes before a value.
_IN_QUERY, _OF_QUERY = r"(?:[?&]|&amp;|\\u0026|%3F|%26)", r"(?:(?!&|%26|\\)[^\s\"'])"
_BREAK = r"(?:\r?\n|(?:\\r)?\\n)"
_ARGUMENT = r"(?:\"[^\"\n]{3,200}\"|'[^'\n]{3,200}'|[^\s\"'-][^\s\"']{2,200})"
_BEFORE = (
    r"""
    \b(?:proxy-)?authorization[\"']?\s{0,3}[:=]\s{0,3}\[?[\"']?(?:(?:bearer|basic|token|apikey|negotiate|digest|aws4-hmac-sha256)\s+)?
        [^\s\"',]{6,4000}
    \b(?:bearer|basic) (?=\S{0,400}[0-9A-Z=])(?!(?:gpu|mig)-)
        [\w.~+/-]{12,4000}={0,2}(?![\w.~+/=-])
    \b(?:set-)?cookie[\"']?:\s{0,3}[\"']?
        [\w.-]{1,80}=[^\n\"']{4,4000}
    hooks\.slack\.com/(?:services|workflows|triggers)/
        [\w/-]{10,200}
    /(?:hooks|bot/v2/hook)/
        (?:[a-z0-9]{26}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b
    discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/
        [\w/-]{10,200}
    [\w-]{1,60}\.(?:webhook\.office\.com|logic\.azure\.com)[^\s\"'?]{0,40}/
        [^\s\"']{20,400}
    \b_gitlab_session=
        [0-9a-z]{32}\b
    \bBUNDLE_\w{1,80}[=:]\s?
        [0-9a-f]{8}:[0-9a-f]{8}\b
    api\.telegram\.org/bot
        \d{5,15}:[\w-]{20,60}
    <IN_QUERY>x-(?:amz|goog)-(?:signature|credential|security-token)(?:=|%3D)
        <OF_QUERY>{8,4000}
    <IN_QUERY>(?:signature|sig|token|access_token|apikey|api_key)(?:=|%3D)
        <OF_QUERY>{8,2000}
    <IN_QUERY>(?:key|code|auth)(?:=|%3D)(?=[^\s/.&]{8,400}(?:[&\s\"']|$))(?=\D{0,400}\d)
        <OF_QUERY>{8,2000}
    ://(?![^\s/@:\"']{0,80}:\d{1,5}[^\w@-])
        [^\s/@:\"'?#]{0,80}:[^\s@\"'<>][^\s\"'<>]{2,200}(?=@)(?!@sha256)
    https?://
        [^\s/@:\"'.]{16,200}(?=@)
    \b(?:curl|etcdctl)\b[^\n]{0,400}?\s(?:-u|--user|--proxy-user)[ =]?[\"']?
        [^\s\"':]{1,80}:[^\s\"']{1,200}
    \b(?:sshpass|\w{2,20} login|mysql\w{0,8}|mariadb\w{0,8}|mongo\w{0,8}|redis-cli|ldap\w{3,8}|ipmi[\w-]{1,12}|bmc-\w{2,10}|racadm|cqlsh|sqlcmd|mosquitto_\w{3}|plink|pscp)\b[^\n]{0,300}?\s-(?:p|a|w|pw) ?
        (?!\d{1,5}\b)<ARGUMENT>
    \bsnmp\w{2,10}\b[^\n]{0,300}?\s(?-i:-A) ?
        <ARGUMENT>
    \bsnmp\w{2,10}\b[^\n]{0,300}?\s(?-i:-X) ?
        <ARGUMENT>
    \brclone\s{1,4}obscure\s{1,4}
        <ARGUMENT>
    ^[\w.*-]{1,80}:(?:\d{4}|\*):[\w.*-]{1,60}:[\w.-]{1,60}:
        [^\s:]{6,200}$
    \{s?(?:sha|md5|crypt)\d{0,3}\}
        [\w+/=$.-]{16,200}
    \bgrub\.pbkdf2\.sha512\.\d{1,9}\.
        [0-9a-f.]{20,400}
    \bcookie=(?!0x)(?=\S{0,80}\d)
        [\w%+/=-]{16,4000}
    \blftp\b[^\n]{0,200}?\s(?:-u|--user) ?[\"']?[^\s,]{1,60},
        [^\s\"']{2,200}
    \bprivate-mac:[ ]
        [0-9a-f]{40,64}\b
    \bprivate-lines: \d{1,3}<BREAK>
        [a-z0-9+/=]{1,64}(?:<BREAK>[a-z0-9+/=]{1,64}(?=<BREAK>|$)){0,100}
    \bunseal key(?: \d{1,2})?:[ ]
        \S{20,200}
    \blogin\s{1,4}\S{1,80}\s{1,4}password\s{1,4}
        \S{1,200}
    (?<![a-z])wandb(?![a-z]).{0,40}?\b
        [0-9a-f]{40}\b
    ://[^\s/\"']{1,200}/t/
        [a-z]{2}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b
    \b(?:cryptkey|(?:rd\.)?luks\.key)=
        \S{1,400}
    \bsmbclient\b[^\n]{0,200}?\s(?:-U|--user)[ =]?[^\s%]{1,80}%
        \S{1,200}
    \b(?:bindpw|rootpw|requirepass|masterauth|aws_secret_access_key|aws_session_token)\s?[:=]?\s{1,8}
        [^\s\"']{4,400}
    \b(?:az login|htpasswd)\b[^\n]{0,300}?\s(?:-p|-\w{0,3}b\w{0,3}\s{1,4}\S{1,200}\s{1,4}\S{1,80})\s{1,4}
        [^\s\"'-]\S{2,200}
    \bopenssl\b[^\n]{0,300}?\s-(?:k|pass(?:in|out)?)\s{1,4}(?:pass:)?
        (?!file:|env:|stdin|fd:)[^\s\"'-]\S{2,200}
    ^[ \t]{0,8}password[ \t]{1,4}
        (?=\S{0,80}\d)[^\s\"']{6,200}(?=[ \t]{0,8}$)
    \bx-[a-z-]{2,30}-key:\s?
        [^\s\"']{8,400}
    \$(?:2[aby]|5|6|y|gy)\$
        [\w./=,$-]{20,200}
    \b(?:wpa_)?psk\s?[=:]\s{0,3}[\"']?
        [^\s\"']{8,64}
    \buser\s?=\s?[\"'][^\s:\"']{1,60}:
        [^\s\"']{4,200}
    \bmc\s+alias\s+set(?:\s+\S{1,200}){3}\s+
        \S{8,200}
    \b(?:sudo|su|passwd|chpasswd|kinit|cryptsetup|gpg2?|openssl|ssh-add|keyctl|zfs|vault|login)\s[^\n|]{0,200}(?<!<)<<<\s?
        (?:\"[^\"\n]{3,200}\"|'[^'\n]{3,200}'|[^\s\"']{3,200})
    (?:=\s?password\s?\(|\bidentified\s(?:with\s\S{1,40}\s)?by)\s?[\"']
        [^\"'\n]{3,200}
    <auth-user-pass>(?:\s|<BREAK>){0,8}
        [^<\s\\][^<]{2,400}
    assw(?:or)?d[^\n]{0,40}\n?[^\n]{0,40}\bsend\s{1,4}(?:--\s{1,4})?\\?\"
        [^\"\s\\]{3,200}
    \bsend\s{1,4}(?:--\s{1,4})?\\?\"
        (?=\D{0,80}\d)[^\"\s\\]{6,200}(?=\\{1,2}[rn]\\?\")
    \bnet\s{1,4}use\s{1,4}\S{1,80}\s{1,4}\\\\\S{1,200}\s{1,4}
        (?!/)\S{3,200}
    \bnet\s{1,4}user\s{1,4}\S{1,80}\s{1,4}
        (?!/)(?=\S{0,80}\d)\S{4,200}(?=\s{1,4}/|\s{0,4}$)
    \bconvertto-securestring\s{1,4}(?:-string\s{1,4})?[\"']
        [^\"'\n]{3,200}
    \s/pass(?:word)?:
        \S{3,200}
    \bsecretid:\s{1,12}
        [0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b
    (?:\b(?:sqlplus|impdp|expdp|rman|sqlldr)\s{1,4}|\bjdbc:oracle:\w{2,10}:)[\w$#]{1,40}/
        [^\s@\"'/]{2,200}
    \becho\s+(?:-n\s+)?[\"']?(?:\w{1,32}:)?
        [^\s\"'|:]{4,200}(?=[\"']?\s*\|\s*(?:sudo [^|\n]{0,20}-\w{0,3}s|chpasswd|passwd|kinit|cryptsetup|docker login|podman login)\b)
""".replace("<ARGUMENT>", _ARGUMENT)  # noqa: E501
    .replace("<IN_QUERY>", _IN_QUERY)
    .replace("<OF_QUERY>", _OF_QUERY)
    .replace("<BREAK>", _BREAK)
)
_AROUND = tuple(
    re.compile(f"({before})({value})", re.IGNORECASE | re.MULTILINE)
    for before, value in zip(*[map(str.strip, _BEFORE.strip().split("\n"))] * 2, strict=True)
)

# A name that says that its value is a secret; a weak one says it only of a value that looks like
# one. What may come between the two, and the value.
_PASSWORDS = "password passwd passphrase passcode"
_FOREIGN_PASSWORDS = (
    "密码 密碼 口令 パスワード パスフレーズ 暗証番号 비밀번호 암호(?!화) contrase(?:ñ|n\u0303?)a"
    " passwort kennwort "
    r"mot[\s_-]de[\s_-]passe пароль wachtwoord lösenord salasana "
    r"(?<![a-z])(?:clave|senha|parola|hasło|heslo)(?![a-z])"
)
_FOREIGN_KEYS = "密钥 密鑰 令牌 秘密鍵 トークン 토큰"
_STRONG = (
    rf"{_PASSWORDS} pass_phrase secret credential (?<![a-z])creds(?![a-z]) token authtok(?!_type) "
    r"(?:(?<=[_.-])|stor(?:ag)?e|bind|user|root|key)(?:pwd|pw|pass|pat)(?![a-z])"
)
_KEYS = (
    "api access private account shared encryption signing ssh auth master deploy subscription"
    " license service consumer app storage session luks munge host client jwt hmac"
)
_WEAK = (
    r"(?<![a-z])(?:pass|pwd|auth)(?![a-z]) (?-i:(?<=[a-z])Pass(?![a-z])|(?<=[A-Z]_)KEY(?![A-Z]))"
)
_SAYS_SECRET = re.compile(
    rf"{'|'.join(_STRONG.split())}|(?:{'|'.join(_KEYS.split())})[ _.-]?key", re.IGNORECASE
)
_SAYS_FOREIGN = re.compile("|".join(f"{_FOREIGN_PASSWORDS} {_FOREIGN_KEYS}".split()), re.IGNORECASE)
_SAYS_PASSWORD = re.compile(
    f"(?:{'|'.join(f'{_PASSWORDS} {_FOREIGN_PASSWORDS}'.split())})$", re.IGNORECASE
)
_QUOTE = r"\\{0,8}[\"']"
_BETWEEN = "|".join(
    (
        rf"(?P<paired>(?:{_QUOTE})?\s{{0,3}},?\s{{1,80}}value=|(?:{_QUOTE})?,?\s{{0,80}}(?:{_QUOTE})?(?<![\w.-])\w{{0,20}}value(?:{_QUOTE})?:\s{{0,3}})",
        rf"(?P<assigned>(?:{_QUOTE})?(?: provided)?(?:["
        r" \t]{0,40}|\s{0,3})(?:=>|:=|::(?=\s)|[=:：＝]|%3[AD])[ \t]{0,40}"
        rf"(?:[|>][+-]?(?:{_BREAK}[ \t]{{0,40}}){{0,2}}{_BREAK}[ \t]{{1,40}}|{_BREAK}?["
        r" \t]{0,16})"
        rf"(?:- |\[(?={_QUOTE}))?|(?:{_QUOTE}){_BREAK}{{2}})",
        r"(?P<tagged>(?:\s[^<>\n]{0,80}|</[\w:.-]{1,40}>\s{0,80}<[\w:.-]{1,40})?(?<!-)>\s{0,3})",
        rf"(?P<listed>(?:{_QUOTE})\s?[,;]\s{{0,40}}(?=[bu]?(?:{_QUOTE}))|[,;\t](?=\S)|["
        r" \t]{0,60}[|│┃][ \t]{0,8}| (?:is|was|set to|es|ist|lautet|est) "
        r"|(?<=[는은]) |(?<=[是为])[ ：]?)",
        r"(?P<asked> (?:is )?(?:generated )?for \S{1,80}: )",
        r"(?P<apart>(?<=\w)(?:[ \t]{1,40}|\s{1,3}))",
    )
)
_ENGLISH = f"{_SAYS_SECRET.pattern}|{'|'.join(_WEAK.split())}"
_NAMED, _NAMED_ABROAD = (
    re.compile(
        rf"(?P<word>{words})[\w.-]{{0,80}}(?:(?![\w.-])|(?<=[是为]))(?:{_BETWEEN})", re.IGNORECASE
    )
    for words in (_ENGLISH, f"{_ENGLISH}|{_SAYS_FOREIGN.pattern}")
)
_ENDS = r"\s\"',;&|)}\]\\"
_CHARACTER = rf"(?!%2[26]|&(?:amp|quot);|</|\\u0026)(?:[^{_ENDS}]|\\(?![nr\"'\\])|[\"',;&|)}}\]](?=[;&|)}}\]]{{0,3}}[^{_ENDS}<])(?![\w.-]{{1,40}}\s?[=:]))"  # noqa: E501
_VALUE = re.compile(
    rf"[bBuUrR]{{0,2}}(?P<quote>{_QUOTE})(?P<quoted>[^\n]{{1,4000}}?)(?<!\\)(?<!\\')(?P=quote)(?!\\''|(?P=quote)\w)|(?P<opened>(?:{_QUOTE})?)(?P<bare>(?:{_CHARACTER}){{1,4000}})"
)
_FURTHER = (
    ("[", re.compile(rf"\s{{0,40}},\s{{0,40}}(?={_QUOTE})")),
    ("- ", re.compile(rf"(?:{_QUOTE})?{_BREAK}[ \t]{{0,40}}- (?=\S)")),
)
_IN_A_TAG = re.compile(r"(?P<quote>)(?P<quoted>[^<\n]{1,1000})(?=</)(?P<opened>)(?P<bare>)")
_LOOKS_SECRET = re.compile(
    r"(?=\D*\d)(?![A-Za-z_]+[-_]?\d{1,4}$|[A-Z-]+\d{1,4}$|\d+[-:]|GPU-|MIG-)(?:[^\s/.=]{6,4000}={0,2}|[\w+/-]{16,4000}={1,2}|(?=\S*[A-Z])(?=\S*[a-z])[A-Za-z0-9+][\w+/]{20,4000})"
)

# Names of settings of models and of files with secrets; the tokens of a language model are no
# secrets.
_COUNTED = (
    "max min num n pad eos bos eot unk sep cls mask total new prompt completion input output per"
    " next special cache cached stop start end image video audio media global local first last each"
    " avg mean ignore padding text visual decode prefill generated draft bonus"
)
_OF_TOKENS = (
    r"id ids count len length limit type index idx budget rate size url uri file path name class"
    r" per num throughput embed\w* dispatch\w* drop\w* permut\w* "
    r"level mask mixing shift parallel choice healing dim expir\w* ttl endpoint bucket batch group"
    r" usage lora pool\w* wise"
)
_OF_KEYS = (
    "file path name dir ref arn id length len type hash policy prompt provider store manager size"
    " version env enabled required cache rotation"
)
_NO_SECRET_NAME = re.compile(
    rf"tokeni[sz]|tokens(?![a-z])|(?<![a-z])(?:{'|'.join(_COUNTED.split())})[_.-]?tokens?(?![a-z])|tokens?[_.-]?(?:{'|'.join(_OF_TOKENS.split())})(?![a-z])"
    rf"|(?:key|secret|password|passwd|credential|token)s?[_.-]?(?:{'|'.join(_OF_KEYS.split())})(?![a-z])"
    r"|(?:host|client|session|app|license|service)[ _.-]?key$",
    re.IGNORECASE,
)

# Values that are none: placeholders, expressions, paths, numbers, words of a sentence or of a type.
_SENTENCE = (
    "none null nil true false yes no on off unset set not is was are were be has have had to for"
    " from in of and or the a an that this with by at as it if str string bytes int dict list"
    " optional any object class type field required missing invalid expired incorrect wrong empty"
    " default auto provided given hidden redacted masked authentication authorization auth denied"
    " failed failure error ok unknown unsupported found loaded used using will must should could"
    " can cannot may login prompt file env environment variable here below above rejected accepted"
    " changed manager store mismatch validation verification refresh request response header"
    " management service server generated value key name length count id plugin provider support"
    " exchange rotation only when while"
)
_OF_A_SENTENCE = f"(?:{'|'.join(_SENTENCE.split())})"
_NO_SECRET = re.compile(
    r"<.*|(?:file|env|fd):\S*|\$[({].*|\$[A-Z_]{2,}|%\(.*|%[sr]|[({\[].*|\*+|(?:[a-z_]\w{0,60}\.)*[a-z_]\w{0,60}[\[(].*|(?:self|os|args|cfg|config|settings|process|environ|kwargs)\.[\w.()\[\]]*|x{3,}|\.{2,}|-+"
    rf"|~?\.{{0,2}}(?:/[a-z0-9_.-]{{1,40}}){{2,}}/?|[a-z]:\\.*|{_OF_A_SENTENCE}(?:["
    rf" .:]+{_OF_A_SENTENCE})*[.!?:]?",
    re.IGNORECASE,
)
_COUNT = re.compile(r"-?\d{1,6}(?:\.\d{1,6})?[kmbgt%]?s?", re.IGNORECASE)
_DOTTED = re.compile(r"[A-Za-z_]+(?:\.[A-Za-z_]+)+")


LINES = "lines"  # the key of the lines of a log
LONGEST_HEADER = 1000  # characters
_CELLS = {one: re.compile(rf'(?:"[^"]*"|[^"{one}])*') for one in ",;\t|"}
_A_NAME = r"[ \"]{0,4}[^\W\d][\w .()#/-]{0,60}[\"\r]{0,2}"
_HEADER = re.compile(rf"(?:{_A_NAME}[,;\t|])+(?:{_A_NAME})?")
_OF_A_HEADER = re.compile(r"[^\W\d][\w.()#/-]{0,40}(?: [\w.()#/-]{1,40})?")

# Cheap questions first: a page has a hundred thousand texts, and hardly one has a secret.
_MAY_BE_AROUND = re.compile(
    r"(?i)auth|bearer|basic"
    r" |cookie|hooks\.|webhook|azure|telegram|[?&]|://|curl|pass|login|mysql|maria|redis|ldap|ipmi|wandb|key=|-key:|pw|psk|aws_s|openssl"
    r"|smbclient|\$[256yg]|alias|echo |user"
    r" ?=|<<<|_session=|bundle_|mongo|bmc-|racadm|cqlsh|sqlcmd|mosq|snmp|plink|pscp|lftp|private-"
    r"|unseal|hook|%3f|%26|rclone|send|etcdctl|assw|net"
    r" us|securestring|secretid|sqlpl|[ie]mpdp|rman|sqlldr|oracle|identified"
    r"|:(?:\d{4}|\*):|\{[scm]\w{2,7}\}|pbkdf"
)
_MAY_BE_NAMED = re.compile(
    rf"(?i)pass|secret|credential|token|key|pat|auth|creds|pw|{_SAYS_FOREIGN.pattern}"
)
_MAY_BE_ISSUED = re.compile(r"[\w.+/=~-]{20}")


def without_secrets(text: str) -> str:
    """`text` with everything masked that looks like a password, a token or a key, and nothing else.
    Masking again changes nothing."""
    return _kept(text) if len(text) <= LONGEST_KEPT else _masked(text)


def _masked(text: str) -> str:
    if "-----BEGIN" in text:
        text = _BLOCK.sub(MASK, text)
    if _MAY_BE_AROUND.search(text):
        for pattern in _AROUND:
            text = pattern.sub(_masked_behind, text)
    if _MAY_BE_ISSUED.search(text):
        text = _WORD.sub(_masked_word, _LONE_LINE.sub(MASK, _FORMS.sub(_masked_form, text)))
    return _without_named(_without_columns(text)) if _MAY_BE_NAMED.search(text) else text


_kept = lru_cache(MOST_KEPT)(_masked)


def masked_document(value: Any) -> Any:
    """The same for every text in a document of JSON, also behind an option in a list and in pairs
    of name and value; keys stay. A list under LINES is one text: a password may be lines below
    what says that it is one."""
    return _of_key("", value)


def masked_fields(value: Any) -> Any:
    """The same for values of dataclasses, which stay what they are, as tuples do: for who cuts or
    wraps their texts: half a secret is not known as one."""
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value,
            **{
                field.name: masked_fields(getattr(value, field.name))
                for field in fields(value)
                if field.init
            },
        )
    if isinstance(value, (list, tuple)):
        return type(value)(map(masked_fields, value))
    return masked_document(value)


def cut_without_secrets(text: str, limit: int) -> str:
    """At most `limit` characters and a mark of what was cut; a longer text is masked first, because
    half a secret is not known as one."""
    return text if len(text) <= limit else f"{leading_words(without_secrets(text), limit)}…"


def _of_key(key: str, value: Any) -> Any:
    """A text whose key says that it is a secret, as its key would in a line; each text of a list
    under that key."""
    if isinstance(value, str):
        is_named = len(value.split()) == 1 and _MAY_BE_NAMED.search(key)
        return (
            without_secrets(f"{key}={value}").removeprefix(f"{key}=")
            if is_named
            else without_secrets(value)
        )
    if isinstance(value, Mapping):
        names = {
            of_value: value[of_name]
            for of_name, of_value in _PAIRS
            if of_value in value and isinstance(value.get(of_name), str)
        }
        return {one: _of_key(str(names.get(one, one)), inner) for one, inner in value.items()}
    if isinstance(value, (list, tuple)):
        if key == LINES and all(isinstance(one, str) for one in value):
            return without_secrets("\n".join(value)).split("\n") if value else []
        names_of = [
            before if isinstance(before, str) and before.startswith("-") else key
            for before in ("", *value)
        ]
        return [_of_key(name, one) for name, one in zip(names_of, value, strict=False)]
    return value


def _masked_behind(found: re.Match[str]) -> str:
    return found[0] if found[2].startswith((MASK, "$", "%s", "{")) else found[1] + MASK


def _masked_form(found: re.Match[str]) -> str:
    """A form without a prefix (kubeadm's token) must hold digits and letters, or it would be a
    file's name."""
    text = found[0]
    if (
        len(text) == 23
        and text[6] == "."
        and not (
            re.search(r"\d", text[7:]) and re.search(r"[a-z]", text[7:]) and not text[7:].isalpha()
        )
    ):
        return text
    return MASK


def _masked_word(found: re.Match[str]) -> str:
    """Parts between - and _ that are of one kind are the issuer's words, not drawn."""
    parts = [
        kinds
        for part in re.split("[_-]", found[0])
        if len(set(kinds := [one.isalpha() + one.isupper() for one in part])) > 1
    ]
    kinds = [kind for part in parts for kind in part]
    cases = [kind for kind in kinds if kind]
    if (
        len(kinds) < _SHORTEST_DRAWN
        or len(cases) == len(kinds)
        or max(map(len, parts)) < _SHORTEST_PART
        or _changes(cases) < _FEWEST_CASES
    ):
        return found[0]
    return MASK if _changes(kinds) >= _MIXED * len(kinds) else found[0]


def _changes(kinds: list[int]) -> int:
    return sum(map(ne, kinds, kinds[1:]))


def _without_named(text: str) -> str:
    """Every name is judged before its value is read, so that a name that says nothing hides no
    other; a value is judged by its beginning: linear in time."""
    kept, masked_to, at = [], 0, 0
    named = _NAMED_ABROAD if _SAYS_FOREIGN.search(text) else _NAMED
    while found := named.search(text, at):
        at, kind, starts = found.end("word"), found.lastgroup or "", found.end()
        name = _start_of_name(text, found.start()) + text[found.start() : found.start(kind)]
        values, longest = (
            (_IN_A_TAG, LONGEST_IN_A_TAG) if kind == "tagged" else (_VALUE, LONGEST_BEGINNING)
        )
        beginning = (
            None if _NO_SECRET_NAME.search(name) else values.match(text, starts, starts + longest)
        )
        between = text[found.start(kind) : starts]
        value = (
            values.match(text, starts)
            if beginning and _is_secret(name, kind, between, beginning)
            else None
        )
        if not value:
            continue
        for one in _with_the_rest_of_its_list(text, value):
            at = one.end()
            if MASK not in one[0]:
                quote = one["opened"] if one["bare"] else text[one.start() : one.start("quoted")]
                kept.append(
                    f"{text[masked_to : one.start()]}{quote}{MASK}{'' if one['bare'] else one['quote']}"  # noqa: E501
                )
                masked_to = at
    return "".join(kept) + text[masked_to:]


def _with_the_rest_of_its_list(text: str, value: re.Match[str]) -> Iterator[re.Match[str]]:
    """The value, and where it is the first of a list, those that follow: no name comes before
    them."""
    separator = next(
        (pattern for opening, pattern in _FURTHER if text.endswith(opening, 0, value.start())), None
    )
    following: re.Match[str] | None = value
    while following:
        yield following
        further = separator.match(text, following.end()) if separator else None
        following = _VALUE.match(text, further.end()) if further else None


def _start_of_name(text: str, end: int) -> str:
    start = end
    while start and (text[start - 1].isalnum() or text[start - 1] in "_.-"):
        start -= 1
    return text[start:end]


def _without_columns(text: str) -> str:
    """Masks what is in a table (CSV with , ; | or tabs) below a header that says that it is a
    secret; values without a digit stay."""
    columns: dict[int, str] = {}
    lines, separator, width = text.split("\n"), "", 0
    for number, line in enumerate(lines if len(lines) > 1 else []):
        cells = _cells(line, separator) if columns else []
        if columns and len(cells) == width:
            masked = [
                _masked_cell(columns[place], cell) if place in columns else cell
                for place, cell in enumerate(cells)
            ]
            lines[number] = separator.join(masked)
        else:
            columns, separator, width = _secret_columns(line)
    return "\n".join(lines)


def _secret_columns(line: str) -> tuple[dict[int, str], str, int]:
    """({place: name} of the columns with secrets, the separator, how many columns) of a header;
    none of any other line."""
    if (
        len(line) <= LONGEST_HEADER
        and _HEADER.fullmatch(line)
        and (_SAYS_SECRET.search(line) or _SAYS_FOREIGN.search(line))
    ):
        for separator in ",;\t|":
            names = (
                [cell.strip(' "\r') for cell in _cells(line, separator)]
                if separator in line
                else []
            )
            columns = {
                place: name
                for place, name in enumerate(names)
                if _SAYS_SECRET.search(name) or _SAYS_FOREIGN.search(name)
            }
            columns = {
                place: name for place, name in columns.items() if not _NO_SECRET_NAME.search(name)
            }
            if columns and all(map(_OF_A_HEADER.fullmatch, names)):
                return columns, separator, len(names)
    return {}, "", 0


def _cells(line: str, separator: str) -> list[str]:
    """The cells of a line with their quotes; [] if a quote has no end."""
    cells, at = [], 0
    while True:
        found = _CELLS[separator].match(line, at)
        cells.append(found[0])  # type: ignore[index]
        at += len(cells[-1]) + 1
        if at > len(line):
            return cells
        if line[at - 1] != separator:
            return []


def _masked_cell(name: str, cell: str) -> str:
    value = cell.strip(' "\r')
    if (
        len(value) < 4
        or not any(map(str.isdigit, value))
        or " " in value
        or _NO_SECRET.fullmatch(value)
    ):
        return cell
    return (
        cell
        if _COUNT.fullmatch(value) and not _SAYS_PASSWORD.search(name)
        else cell.replace(value, MASK)
    )


def _is_secret(name: str, kind: str, between: str, value: re.Match[str]) -> bool:
    """Whether a value is one, by its name, by what is between them, and by itself."""
    bare = (value["bare"] or value["quoted"]).strip()
    first = bare if value["quoted"] else re.split(r"[;&|)}\],\"']", bare)[0]
    if bare.startswith(MASK) or len(bare) < 3 or _NO_SECRET.fullmatch(first):
        return False
    if _COUNT.fullmatch(bare):
        return len(bare) > 3 and bare.isdigit() and bool(_SAYS_PASSWORD.search(name))
    if "\n" in between and bare.endswith(":"):
        return False  # a key of its own
    if kind == "asked":
        return bool(_SAYS_PASSWORD.search(name)) and any(map(str.isdigit, first))
    if kind == "apart":
        return not bare.startswith("-") and (
            name.startswith("-")
            or (
                name.startswith(("spark.", "fs.", "hadoop.", "hive."))
                and any(map(str.isdigit, bare))
            )
        )
    if (
        kind == "tagged"
        and name == "secret"
        and not value.string.startswith("</secret>", value.end())
    ):
        return False  # the mask itself
    if (
        _SAYS_FOREIGN.search(name)
        and kind != "listed"
        and ("\n" not in between or "|" in between or ">" in between)
    ):
        return any(map(str.isdigit, first)) or ("=" in between and len(first) > 5)
    if not _SAYS_SECRET.search(name) or (kind == "listed" and not name.startswith("-")):
        return bool(_LOOKS_SECRET.fullmatch(bare))
    if "token" in name.lower() and (len(bare) < 6 or (bare.isalpha() and bare.islower())):
        return False
    return not (name.lower().endswith("key") and _DOTTED.fullmatch(bare))
