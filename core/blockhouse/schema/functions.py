"""The functions a DEFAULT may use when the server evaluates it for us.

A function is here when it reads one row, and gives the same for the same row at any time on any replica. Adding one
that does not lets a replay build another block: it would be noticed (the CRC) and block the table.
"""

from __future__ import annotations

_CONVERSIONS = """
    toString toFixedString toDate32 toDateTime64 toBool toTimeZone toLowCardinality toNullable CAST _CAST
    toFloat32 toFloat32OrZero toFloat32OrNull toFloat64 toFloat64OrZero toFloat64OrNull toDate toDateOrZero toDateOrNull
    toDateTime toDateTimeOrZero toDateTimeOrNull toUUID toUUIDOrZero toUUIDOrNull reinterpretAsString
    toIPv4 toIPv6 IPv4NumToString IPv4StringToNum IPv6NumToString IPv6StringToNum UUIDStringToNum UUIDNumToString
"""
_TIMES = """
    toYear toQuarter toMonth toDayOfYear toDayOfMonth toDayOfWeek toHour toMinute toSecond toUnixTimestamp
    toStartOfYear toStartOfQuarter toStartOfMonth toStartOfWeek toStartOfDay toStartOfHour toStartOfMinute
    toStartOfFiveMinute toStartOfFiveMinutes toStartOfTenMinutes toStartOfFifteenMinutes toStartOfInterval toMonday
    toYYYYMM toYYYYMMDD toYYYYMMDDhhmmss toRelativeYearNum toRelativeMonthNum toRelativeWeekNum toRelativeDayNum
    toRelativeHourNum toRelativeMinuteNum toRelativeSecondNum addSeconds addMinutes addHours addDays addWeeks addMonths
    addYears subtractSeconds subtractMinutes subtractHours subtractDays subtractWeeks subtractMonths subtractYears
    toIntervalSecond toIntervalMinute toIntervalHour toIntervalDay toIntervalWeek toIntervalMonth toIntervalYear
    dateDiff formatDateTime fromUnixTimestamp fromUnixTimestamp64Milli fromUnixTimestamp64Micro fromUnixTimestamp64Nano
"""
_NUMBERS = """
    plus minus multiply divide intDiv intDivOrZero modulo negate abs gcd lcm min2 max2 greatest least
    round floor ceil trunc sqrt exp exp2 exp10 log log2 log10 ln pow power sign
    equals notEquals less greater lessOrEquals greaterOrEquals and or xor not if multiIf coalesce ifNull nullIf isNull
    isNotNull assumeNotNull bitAnd bitOr bitXor bitNot bitShiftLeft bitShiftRight bitTest in notIn tuple array
"""
_TEXTS = """
    length lengthUTF8 empty notEmpty lower upper lowerUTF8 upperUTF8 lcase ucase reverse concat substring substr
    substringUTF8 left right trim trimBoth trimLeft trimRight replaceOne replaceAll replaceRegexpOne replaceRegexpAll
    position positionUTF8 positionCaseInsensitive like notLike match startsWith endsWith extract splitByChar
    splitByString arrayElement has indexOf arrayStringConcat tupleElement appendTrailingCharIfAbsent leftPad rightPad
    domain domainWithoutWWW topLevelDomain firstSignificantSubdomain cutToFirstSignificantSubdomain protocol path
    pathFull queryString fragment queryStringAndFragment cutQueryString cutFragment cutWWW extractURLParameter
    cutURLParameter decodeURLComponent hex unhex base64Encode base64Decode toValidUTF8
    visitParamHas visitParamExtractUInt visitParamExtractInt visitParamExtractFloat visitParamExtractBool
    visitParamExtractRaw visitParamExtractString JSONHas JSONLength JSONExtractString JSONExtractInt JSONExtractUInt
    JSONExtractFloat JSONExtractBool JSONExtractRaw simpleJSONExtractString simpleJSONExtractInt simpleJSONExtractUInt
"""
_HASHES = """
    cityHash64 sipHash64 sipHash128 halfMD5 MD5 SHA1 SHA224 SHA256 farmHash64 metroHash64 xxHash32 xxHash64
    murmurHash2_32 murmurHash2_64 murmurHash3_32 murmurHash3_64 murmurHash3_128 intHash32 intHash64
    javaHash CRC32 URLHash
"""
_INTEGERS = [f"{sign}Int{bits}" for sign in ("to", "toU") for bits in (8, 16, 32, 64, 128, 256)]
REPEATABLE = frozenset(
    [name for group in (_CONVERSIONS, _TIMES, _NUMBERS, _TEXTS, _HASHES) for name in group.split()]
    + [f"{name}{suffix}" for name in _INTEGERS for suffix in ("", "OrZero", "OrNull")]
    + [f"{name.replace('to', 'reinterpretAs', 1)}" for name in _INTEGERS]
    + [f"toDecimal{bits}{suffix}" for bits in (32, 64, 128, 256) for suffix in ("", "OrZero", "OrNull")]
)

_CHANGING = """
    now NOW now64 nowInBlock today yesterday curdate current_date CURRENT_TIMESTAMP UTCTimestamp
    rand rand32 rand64 randConstant randomString randomFixedString randomPrintableASCII fuzzBits
    canonicalRand randUniform randNormal randLogNormal randBinomial randNegativeBinomial randPoisson randBernoulli
    randExponential randChiSquared randStudentT randFisherF randomStringUTF8
    generateUUIDv4 generateUUIDv7 generateULID generateSnowflakeID
    hostName hostname FQDN fqdn uptime blockNumber rowNumberInBlock rowNumberInAllBlocks runningDifference neighbor
    serverUUID connectionId queryID currentUser user UTC_timestamp
"""
NOT_REPEATABLE = frozenset(_CHANGING.split())
"""What makes a MATERIALIZED column differ between two attempts to insert one block, whatever case it is written in."""

_LANGUAGE = """
    AND OR NOT IN LIKE IS NULL CASE WHEN THEN ELSE END BETWEEN AS TRUE FALSE
    INTERVAL SECOND MINUTE HOUR DAY WEEK MONTH QUARTER YEAR
"""
WORDS = frozenset(_LANGUAGE.split())
SIGNS = frozenset(["+", "-", "*", "/", "%", "(", ")", ",", "[", "]", "=", "==", "!=", "<>", "<", ">", "<=", ">=", "||"])
