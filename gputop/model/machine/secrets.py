"""What may be a secret, by its name and by its form.

Nothing here is certain, so a possible secret counts as one: hiding a name too many costs little. No
value is searched beyond `_LOOKED_AT` characters, and no pattern takes exponential time: whoever
runs a process chooses the text that is searched.
"""

from __future__ import annotations

import binascii
import itertools
import re
from collections.abc import Iterable

_LOOKED_AT = 2048
"""Characters of a value that are searched; fewer are ever shown."""

# --- names ---------------------------------------------------------------------------------------

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_WORDS_TEXT = """
PASS PW PWD PSW PASSWD CRED CREDS AUTH OAUTH COOKIE COOKIES PRIV DSN LOGIN LOGON JWT BEARER
PAT PIN OTP TOTP MFA SALT SAS SIG SIGNATURE WEBHOOK NETRC PGPASS HTPASSWD CONNSTR SEED MNEMONIC KRB
PASSCODE PINCODE HMAC IV NONCE KENNWORT MOTDEPASSE CONTRASENA SENHA
"""
_SECRET_WORDS = frozenset(_SECRET_WORDS_TEXT.split())
_PARTS = re.compile(
    r"PASSW|PASSPHRASE|SECRET|TOKEN(?!I[ZS])|CREDENTIAL|API_?KEY|COOKIE|PRIVATE|CONN(?:ECTION)?_?STR"
    r"|(?:ACCESS|ACCOUNT|SHARED|ENCRYPTION|SIGNING)_?KEY|NETRC|AUTH(?!OR(?:S|ED|ITY)?(?:_|\Z))"
    r"|(?<!BY)(?<!COM)(?<!SUR)PASS(?:FILE)?(?:_|\Z)|(?:PWD|PW|PSW)(?:_|\Z)|KEY(?!BOARD|MAP|STROKE|TIMEOUT)"
    r"|ROLE_?ID(?:_|\Z)"  # Vault's AppRole
)
_NO_KEYS = frozenset(
    ["MONKEY", "MONKEYS", "MONKEYPATCH", "DONKEY", "TURKEY", "HOCKEY", "WHISKEY", "JOCKEY"]
)
"""Words that are no keys; other words of the same name still count."""
_NUMBERED = re.compile(
    r"(?:KEY|TOKEN|AUTH)(?!S?(?:_SEEDS?)?\Z|_?(?:CODE|ID|VALUE|STRING|NUMBER|DATA)\Z)|SEEDS?\Z"
)
"""Names of this kind with a number are no secrets: --key-dim 64, --keyframes 3, --seed 0."""
_NUMBER = re.compile(r"[+-]?[0-9]{0,20}\.?[0-9]{0,20}(?:[eE][+-]?[0-9]{1,3})?")
_OF_FILES = frozenset(["FILE", "FILENAME", "PATH", "DIR", "DIRECTORY", "FOLDER"])
"""Last words of the names of options whose values are file names: --auth-file x."""
_OF_KINDS = frozenset(
    ["TYPE", "DTYPE", "MODE", "KIND", "METHOD", "COLUMN", "FIELD", "FORMAT", "ALGORITHM", "SCHEME",
     "STRATEGY", "BACKEND", "POLICY", "LEVEL"]
)  # fmt: skip
"""Last words of the names of options whose values are plain words: --auth-mode basic."""
_PLAIN = re.compile(r"[a-z][a-z_-]{0,15}")
_FOLDERS = frozenset({"PWD", "OLDPWD"})
"""Names that are no secret if they hold a folder, whatever their words mean elsewhere."""

# --- values --------------------------------------------------------------------------------------

_GPU_UUID = re.compile(
    r"\b(?:MIG-GPU|MIG|GPU)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE
)
_TOKEN = re.compile(
    r"\beyJ[\w-]{8,}\.|BEGIN [A-Z ]{0,40}PRIVATE|AGE-SECRET-KEY-"
    r"|\b(?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[A-Z0-9]{12}|\bAIza[\w-]{20}|\bya29\.|GOCSPX-"
    r"|\b(?:sk|rk|pk)[-_](?:[a-z]{2,6}[-_])?[\w-]{12}|\bhf_\w{8}|\bgh[opsur]_\w{8}|github_pat_\w{8}"
    r"|\bglpat-|\bxox[abeoprs]-|\bxapp-|hooks\.slack\.com/services/|\bnpm_\w{16}|\bpypi-\w{16}"
    r"|\bdckr_pat_|\bnvapi-|\bdapi[0-9a-f]{16}|\bhv[sbr]\.\w{8}|\bSG\.[\w-]{8}|\bops_\w{16}"
    r"|\bshp(?:at|ss|ca)_\w{8}|\bdop_v1_|\bkey-[0-9a-f]{16}|\b[0-9]{8,10}:[\w-]{30}"
    r"|\$(?:1|2[aby]|5|6|y|argon2\w{1,2})\$|\bssh-(?:rsa|ed25519) AAAA",
)
_CREDENTIAL = re.compile(
    r"://[^/\s]{0,256}@"  # a URL with a user, who may be a token
    r"|passw|passphrase|secret|token(?!i[zs])|credential|api.?key|account.?key|bearer|authorization"
    r"|\bbasic [a-z0-9+/]{6}|private.?key|client.?key|sshpass|set-cookie|\bsess(?:ion)?_?id\b"
    r"|(?<![a-z])(?:pass|pw|psw|auth|login|key|sig|uid_?key|cookie|jwt|shared\w{3,24})"
    r"[\"']{0,1}\s{0,8}[=:]\s{0,8}\S|(?<![a-z])pwd[\"']{0,1}\s{0,8}[=:]\s{0,8}[^\s/]"
    r"|(?<!\S)--?(?:pass|pw|pwd|auth|key)(?:[= ]\S)|(?<!\S)(?:-u|--user)[= ][^\s:]{1,64}:\S",
    re.IGNORECASE,
)
_AT = re.compile(r"(?<![\w./:@-])[\w.+-]{1,64}:[^\s:@/]{1,256}@[\w.-]")
_LONG = re.compile(
    r"(?=[A-Za-z]{0,15}[0-9])(?=[0-9]{0,15}[A-Za-z])[A-Za-z0-9]{16}"  # or a part of a token
    r"|[A-Za-z0-9]{24}"
)
_BASE64 = re.compile(
    r"(?=.{0,64}[a-z])(?=.{0,64}[A-Z])(?=.{0,64}[0-9])[A-Za-z0-9+=_-][A-Za-z0-9+/=_-]{19,}"
)
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,2}")
_RUN = re.compile(r"[A-Za-z0-9]{10,}")
_CHANGES = 5
"""Changes between digits, small and capital letters in one run of them: no word has this many."""
_PATHS = re.compile(r"(?:~|\.{0,2}/)[\w.+@%,~ /-]*(?::[\w.+@%,~ /-]*)*", re.ASCII)
_OF_PATHS = re.compile(
    r"(?:PATH|DIR|DIRS|HOME|PREFIX|ROOT|PWD|SHELL|FILE|EXE|BIN|CACHE|PYTHON|_|ENV)\Z"
)
_OF_HASHES = re.compile(r"(?:^|_)(?:COMMIT|SHA|SHA1|SHA256|REV|REVISION|DIGEST|CHECKSUM|HASH)\Z")
_HEX = re.compile(r"(?:sha(?:1|256):)?[0-9a-f]{7,64}\Z")


def is_secret(name: str, value: str) -> bool:
    """Whether a variable may hold a secret."""
    return is_secret_name(name, value) or looks_secret(value, name)


def is_secret_name(name: str, value: str = "") -> bool:
    """Whether a name is typical of secrets: DB_PASS, sshpass, apiKey, LDAP_PW."""
    if name in _FOLDERS and value.startswith("/"):
        return False
    words = [word.upper() for word in _WORD.findall(name[:256])]
    if "TOKENS" in words and value.isdecimal() and len(value) < 8:
        return False  # MAX_TOKENS
    if not _SECRET_WORDS.isdisjoint(words):
        return True
    return bool(_PARTS.search("_".join(word for word in words if word not in _NO_KEYS)))


def looks_secret(value: str, name: str = "") -> bool:
    """Whether a value looks like a secret, or contains one."""
    text = _GPU_UUID.sub("", value[:_LOOKED_AT])
    upper = name.upper()
    if _TOKEN.search(text):
        return True
    if _OF_PATHS.search(upper) and _PATHS.fullmatch(text):
        return False  # package managers name folders by hashes
    if _OF_HASHES.search(upper) and _HEX.match(text):
        return False
    if _CREDENTIAL.search(text) or ("@" in text and _AT.search(text)):
        return True
    return _is_random(text)


def _is_random(text: str) -> bool:
    if _LONG.search(text) or _BASE64.fullmatch(text) or _hides_a_credential(text):
        return True
    return any(_changes(run) >= _CHANGES for run in _RUN.findall(text))


def _changes(run: str) -> int:
    kinds = ["0" if c.isdigit() else "A" if c.isupper() else "a" for c in run]
    return sum(before != after for before, after in itertools.pairwise(kinds))


def _hides_a_credential(text: str) -> bool:
    """Whether it is base64 of `user:password` or of JSON with one."""
    if not _ENCODED.fullmatch(text):
        return False
    try:
        plain = binascii.a2b_base64(text.replace("-", "+").replace("_", "/") + "==").decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        return False
    return plain.isprintable() and (":" in plain or bool(_CREDENTIAL.search(plain)))


# --- command lines -------------------------------------------------------------------------------

MASK = "***"
_NAMED = re.compile(
    r"--?(?P<option>[A-Za-z][\w.-]{0,63})|[{\"']{0,2}(?P<header>[A-Za-z][\w-]{0,63})[\"']?:"
)
"""A name whose value is the next word: of an option, of a header or in a dictionary."""
_OPTION = re.compile(r"(-{0,2})([A-Za-z][\w.-]{0,63})=(.*)", re.DOTALL)
_SCHEME = re.compile(r"(?:bearer|basic|digest|token):?\Z", re.IGNORECASE)
"""The word before the credentials of an Authorization header."""
_SHORT = re.compile(r"(-[pPawkW])(.*)", re.DOTALL)
"""Options of `_ASKING` that take a password: as the next word, or joined to the option."""
_ASKING_TEXT = """
sshpass mysql mysqldump mysqladmin mariadb mariadb-dump redis-cli mongo mongosh mongodump
ldapsearch ldapadd ldapmodify ldapwhoami docker podman nerdctl helm 7z 7za 7zr zip unzip openssl
smbclient rclone kinit cifs mosquitto_pub mosquitto_sub influx clickhouse-client rabbitmqadmin
"""
_ASKING = frozenset(_ASKING_TEXT.split())
"""Programs that take a password by a short option."""
_LOGIN = frozenset({"wandb", "huggingface-cli", "hf", "gh", "comet"})
"""Programs with a `login` command that may take a token as a word."""


def masked(command: str) -> str:
    """Return a command line with possible secrets masked: `--api-key ***`, `DB_PASS=***`.

    It cannot be known where an argument with blanks ends: if there are arguments, see below."""
    return " ".join(masked_words(command.split(" ")))


def masked_words(arguments: Iterable[str]) -> list[str]:
    """Return arguments with possible secrets masked; one with blanks is masked as a whole."""
    words, before, program = [], "", ""
    for word in arguments:
        option = _OPTION.fullmatch(word)
        name = word.rpartition("/")[2]
        if name in _ASKING or name in _LOGIN:
            program, shown = name, word
        elif (" " in word or not word.startswith("-")) and _takes_secret(before, word, program):
            shown = MASK
        elif program in _ASKING and (short := _SHORT.fullmatch(word)) and short[2]:
            shown = f"{short[1]}{MASK}"
        elif option and _is_secret_option(option[2], option[3]):
            shown = f"{option[1]}{option[2]}={MASK}"
        elif not word.startswith("-") and looks_secret(word, "PATH"):
            shown = word if _SCHEME.match(word) else MASK
        elif " " in word and masked(word) != word:  # a command line in an argument, as for `sh -c`
            shown = MASK
        else:
            shown = word
        words.append(shown)
        before = word
    return words


def _takes_secret(option: str, value: str, program: str) -> bool:
    if _SCHEME.match(option) or (program in _LOGIN and option == "login"):
        return True
    named = _NAMED.fullmatch(option)
    if named is None or (named["header"] and _SCHEME.match(value)):
        return False
    if program in _ASKING and len(option) == 2 and _SHORT.fullmatch(option):
        return True
    if option == "-u":  # user:password; but `python -u train.py`
        return ":" in value or program in _ASKING
    name = named["option"] or named["header"]
    return is_secret_name(name.replace("-", "_"), value) and not _is_setting(name, value)


def _is_secret_option(name: str, value: str) -> bool:
    is_named = is_secret_name(name.replace("-", "_"), value) and not _is_setting(name, value)
    return is_named or looks_secret(value, name.replace("-", "_"))


def _is_setting(name: str, value: str) -> bool:
    """Whether an option with the name of a secret has a number, a file name or a plain word that
    cannot be one."""
    words = [word.upper() for word in _WORD.findall(name[:256])]
    last = words[-1] if words else ""
    if last in _OF_FILES:
        return not looks_secret(value, "PATH")
    if last in _OF_KINDS:
        return bool(_PLAIN.fullmatch(value))
    if not (value and _NUMBER.fullmatch(value)):
        return False
    text = "_".join(words)
    rest = _NUMBERED.sub("", text)
    return rest != text and not is_secret_name(rest)
