// SPDX-License-Identifier: Apache-2.0
// The basic data types of NFS version 4, minor versions 0 to 2: RFC 7531, 5662, 7863 and 8276. Names are the RFCs', values those of
// the XDR. (RFC 8881's text misprints two errors: BAD_STATEID is 10025, and UNSAFE_COMPOUND is 10069.)
//
// `valid()` beside an enum says which values decoding lets through. It lets all through where the RFCs have an error of their own
// for a value that nobody knows, such as BADTYPE or BADIOMODE; everything else is BADXDR.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <system_error>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// RPC's number of NFS, in each version.
inline constexpr std::uint32_t program = 100003;
/// RPC's version of all minor versions.
inline constexpr std::uint32_t version = 4;
/// The minor versions that the codec knows are 0 to this one.
inline constexpr std::uint32_t max_minor_version = 2;
/// The procedures of version 4 (RFC 8881 16).
enum class procedure : std::uint32_t { null = 0, compound = 1 };

/// Bytes that a name, an owner or the like may come with: too long a one is told as RFCs have it, not as BADXDR.
inline constexpr std::uint32_t max_text = 1u << 20;

/// @name Limits of the codec
/// Where the RFCs have none, ours are far above what is in use.
/// @{
inline constexpr std::uint32_t max_handle_size = 128;   // NFS4_FHSIZE
inline constexpr std::uint32_t max_opaque = 1024;       // NFS4_OPAQUE_LIMIT: owners, client ids, scopes
inline constexpr std::uint32_t max_tag = 128;           // bytes; what knfsd takes
inline constexpr std::uint32_t max_component = 4096;    // bytes of a name
inline constexpr std::uint32_t max_owner = 1024;        // bytes of "user@domain" and of an ACE's who
inline constexpr std::uint32_t max_linktext = 65536;    // bytes
inline constexpr std::uint32_t max_xattr_value = 65536; ///< bytes
inline constexpr std::uint32_t max_xattr_names = 65536; ///< in one LISTXATTRS result
inline constexpr std::uint32_t max_attribute_values =
    65536; ///< bytes of all values of one fattr4 that anything has
inline constexpr std::uint32_t max_sent_values =
    1u << 20; ///< bytes that a fattr4 may come with: what is set by it is FBIG beyond the above
inline constexpr std::uint32_t max_sent_aces =
    max_attribute_values / 16;                             // what can come, each with an empty who
inline constexpr std::uint32_t max_aces = 1024;            // of an ACL that is set: FBIG beyond
inline constexpr std::uint32_t max_security_label = 2048;  // bytes; what Linux takes
inline constexpr std::uint32_t max_network_address = 256;  // bytes of a netid or a universal address
inline constexpr std::uint32_t max_network_locations = 64; ///< in COPY and COPY_NOTIFY
inline constexpr std::uint32_t max_gss_handle = 1024;      // bytes
inline constexpr std::uint32_t max_oid = 256;              // bytes of an object identifier
inline constexpr std::uint32_t max_oids = 64;              // hash or encryption algorithms
inline constexpr std::uint32_t max_ssv_handles = 64;
inline constexpr std::uint32_t max_ssv = 1024;             // bytes of an SSV or a digest
inline constexpr std::uint32_t max_security_flavours = 64; ///< in one SECINFO result, or for one back channel
inline constexpr std::uint32_t max_test_stateids = 65536;  // those of a message of 1 MiB
inline constexpr std::uint32_t max_layout_types = 16;
inline constexpr std::uint32_t max_layout_segments = 64;  // in one LAYOUTGET result
inline constexpr std::uint32_t max_layout_body = 1 << 20; ///< bytes of what a layout type defines
inline constexpr std::uint32_t max_device_ids = 1024;     // in one GETDEVICELIST result
inline constexpr std::uint32_t max_device_errors = 64;    // in one LAYOUTERROR
inline constexpr std::uint32_t max_pattern = 65536;       // bytes that WRITE_SAME repeats
inline constexpr std::uint32_t max_read_plus_segments = 1024;
inline constexpr std::uint32_t max_referring_sessions = 16;
inline constexpr std::uint32_t max_referring_calls = 64; ///< for one session
inline constexpr std::uint32_t max_notifications = 64;   // in one CB_NOTIFY or CB_NOTIFY_DEVICEID
inline constexpr std::uint32_t max_notification_body = 65536;
/// @}

/// The operations of COMPOUND by number. Those up to 39 are of minor version 0 (RFC 7530), up to 58 of 1 (RFC
/// 8881), up to 71 of 2 (RFC 7862), then of RFC 8276.
enum class nfs_opnum4 : std::uint32_t {
    access = 3,
    close = 4,
    commit = 5,
    create = 6,
    delegpurge = 7,
    delegreturn = 8,
    getattr = 9,
    getfh = 10,
    link = 11,
    lock = 12,
    lockt = 13,
    locku = 14,
    lookup = 15,
    lookupp = 16,
    nverify = 17,
    open = 18,
    openattr = 19,
    open_confirm = 20,
    open_downgrade = 21,
    putfh = 22,
    putpubfh = 23,
    putrootfh = 24,
    read = 25,
    readdir = 26,
    readlink = 27,
    remove = 28,
    rename = 29,
    renew = 30,
    restorefh = 31,
    savefh = 32,
    secinfo = 33,
    setattr = 34,
    setclientid = 35,
    setclientid_confirm = 36,
    verify = 37,
    write = 38,
    release_lockowner = 39, ///< the last of minor version 0
    backchannel_ctl = 40,
    bind_conn_to_session = 41,
    exchange_id = 42,
    create_session = 43,
    destroy_session = 44,
    free_stateid = 45,
    get_dir_delegation = 46,
    getdeviceinfo = 47,
    getdevicelist = 48,
    layoutcommit = 49,
    layoutget = 50,
    layoutreturn = 51,
    secinfo_no_name = 52,
    sequence = 53,
    set_ssv = 54,
    test_stateid = 55,
    want_delegation = 56,
    destroy_clientid = 57,
    reclaim_complete = 58, ///< the last of minor version 1
    allocate = 59,
    copy = 60,
    copy_notify = 61,
    deallocate = 62,
    io_advise = 63,
    layouterror = 64,
    layoutstats = 65,
    offload_cancel = 66,
    offload_status = 67,
    read_plus = 68,
    seek = 69,
    write_same = 70,
    clone = 71,
    getxattr = 72, ///< from here on RFC 8276, in minor version 2
    setxattr = 73,
    listxattrs = 74,
    removexattr = 75,
    illegal = 10044,
};
/// Numbers from this one on are operations ...
inline constexpr nfs_opnum4 first_operation = nfs_opnum4::access;
/// ... up to this one.
inline constexpr nfs_opnum4 last_operation = nfs_opnum4::removexattr;

/// "GETATTR" and so on; "ILLEGAL" for what is no operation of any minor version.
const char* to_string(nfs_opnum4 value) noexcept;

/// Whether `minor` knows the operation. One that it does not is answered with opcode and status OP_ILLEGAL.
constexpr bool is_operation(nfs_opnum4 value, std::uint32_t minor) noexcept
{
    const nfs_opnum4 last = minor == 0   ? nfs_opnum4::release_lockowner
                            : minor == 1 ? nfs_opnum4::reclaim_complete
                                         : last_operation;
    return value >= first_operation && value <= last;
}

/// Whether `minor` forbids to implement an operation that it knows: NOTSUPP (8881 17, 7862 13).
constexpr bool is_obsolete(nfs_opnum4 value, std::uint32_t minor) noexcept
{
    switch (value) {
    case nfs_opnum4::open_confirm:
    case nfs_opnum4::renew:
    case nfs_opnum4::setclientid:
    case nfs_opnum4::setclientid_confirm:
    case nfs_opnum4::release_lockowner: return minor >= 1;
    case nfs_opnum4::getdevicelist: return minor >= 2;
    default: return false;
    }
}

/// Whether the operation may be the first one of a COMPOUND of minor version 1 or 2 without a SEQUENCE (8881 2.10.2.2). It is the
/// only one then.
constexpr bool runs_without_session(nfs_opnum4 value) noexcept
{
    switch (value) {
    case nfs_opnum4::exchange_id:
    case nfs_opnum4::create_session:
    case nfs_opnum4::destroy_session:
    case nfs_opnum4::destroy_clientid:
    case nfs_opnum4::bind_conn_to_session: return true;
    default: return false;
    }
}

/// What an operation is answered (RFC 8881 15.1, and the RFCs of the extensions).
enum class nfsstat4 : std::uint32_t {
    ok = 0,
    perm = 1,
    noent = 2,
    io = 5,
    nxio = 6,
    access = 13,
    exist = 17,
    xdev = 18,
    notdir = 20,
    isdir = 21,
    inval = 22,
    fbig = 27,
    nospc = 28,
    rofs = 30,
    mlink = 31,
    nametoolong = 63,
    notempty = 66,
    dquot = 69,
    stale = 70,
    badhandle = 10001,
    bad_cookie = 10003,
    notsupp = 10004,
    toosmall = 10005,
    serverfault = 10006,
    badtype = 10007,
    delay = 10008,
    same = 10009,
    denied = 10010,
    expired = 10011,
    locked = 10012,
    grace = 10013,
    fhexpired = 10014,
    share_denied = 10015,
    wrongsec = 10016,
    clid_inuse = 10017,
    resource = 10018, ///< minor version 0 alone
    moved = 10019,
    nofilehandle = 10020,
    minor_vers_mismatch = 10021,
    stale_clientid = 10022,
    stale_stateid =
        10023, ///< minor version 0 alone: a Linux client that meets it in TEST_STATEID of 4.1 loops
    old_stateid = 10024,
    bad_stateid = 10025,
    bad_seqid = 10026,
    not_same = 10027,
    lock_range = 10028,
    symlink = 10029,
    restorefh = 10030, ///< minor version 0 alone
    lease_moved = 10031,
    attrnotsupp = 10032,
    no_grace = 10033,
    reclaim_bad = 10034,
    reclaim_conflict = 10035,
    badxdr = 10036,
    locks_held = 10037,
    openmode = 10038,
    badowner = 10039,
    badchar = 10040,
    badname = 10041,
    bad_range = 10042,
    lock_notsupp = 10043,
    op_illegal = 10044,
    deadlock = 10045,
    file_open = 10046,
    admin_revoked = 10047,
    cb_path_down = 10048, ///< the last of minor version 0
    badiomode = 10049,
    badlayout = 10050,
    bad_session_digest = 10051,
    badsession = 10052,
    badslot = 10053,
    complete_already = 10054,
    conn_not_bound_to_session = 10055,
    deleg_already_wanted = 10056,
    back_chan_busy = 10057,
    layouttrylater = 10058,
    layoutunavailable = 10059,
    nomatching_layout = 10060,
    recallconflict = 10061,
    unknown_layouttype = 10062,
    seq_misordered = 10063,
    sequence_pos = 10064,
    req_too_big = 10065,
    rep_too_big = 10066,
    rep_too_big_to_cache = 10067,
    retry_uncached_rep = 10068,
    unsafe_compound = 10069,
    too_many_ops = 10070,
    op_not_in_session = 10071,
    hash_alg_unsupp = 10072,
    clientid_busy = 10074,
    pnfs_io_hole = 10075,
    seq_false_retry = 10076,
    bad_high_slot = 10077,
    deadsession = 10078,
    encr_alg_unsupp = 10079,
    pnfs_no_layout = 10080,
    not_only_op = 10081,
    wrong_cred = 10082,
    wrong_type = 10083,
    dirdeleg_unavail = 10084,
    reject_deleg = 10085,
    returnconflict = 10086,
    deleg_revoked = 10087, ///< the last of minor version 1
    partner_notsupp = 10088,
    partner_no_auth = 10089,
    union_notsupp = 10090,
    offload_denied = 10091,
    wrong_lfs = 10092,
    badlabel = 10093,
    offload_no_reqs = 10094,
    noxattr = 10095, ///< RFC 8276
    xattr2big = 10096,
};
/// What a peer calls a status stays one, known or not: the caller decides what it means.
constexpr bool valid(nfsstat4) noexcept { return true; }

/// "NFS4ERR_STALE" and so on; "NFS4ERR_unknown" for values that no RFC lists.
const char* to_string(nfsstat4 status) noexcept;

/// Category "nfs4": values of nfsstat4. Where a POSIX errno means the same, codes compare equal to the std::errc.
const std::error_category& status_category() noexcept;
/// So a status stands in an error.
std::error_code make_error_code(nfsstat4 status) noexcept;

/// What the server calls a client (RFC 8881 2.4).
using clientid4 = std::uint64_t;
/// Changes whenever the file does (RFC 8881 5.8.1.4).
using changeid4 = std::uint64_t;
/// Eight bytes that mean something to who made them alone.
using verifier4 = std::array<std::byte, 8>;
/// What the server calls a session (RFC 8881 2.10).
using sessionid4 = std::array<std::byte, 16>;
/// What the server calls a device of layouts (RFC 8881 12.2.10).
using deviceid4 = std::array<std::byte, 16>;

/// The length of a range that ends with the file, however long that grows; count 0 means it in COPY and CLONE.
inline constexpr std::uint64_t to_end_of_file = UINT64_MAX;

/// Sequence ids of stateids are compared modulo 2^32 (8881 8.2.2): negative if `a` came before `b`, 0 if they are the same.
constexpr std::int32_t compare_seqids(std::uint32_t a, std::uint32_t b) noexcept
{
    return static_cast<std::int32_t>(a - b);
}

/// The one that follows: 1 after 2^32 - 1, as 0 says "the latest" in minor versions 1 and 2.
constexpr std::uint32_t next_seqid(std::uint32_t value) noexcept
{
    return value == UINT32_MAX ? 1 : value + 1;
}

/// 8881 8.2, 7530 9.1.4.
struct stateid4 {
    std::uint32_t seqid = 0;
    std::array<std::byte, 12> other{};

    /// The special ones (8881 8.2.3).
    static constexpr stateid4 anonymous() noexcept { return {}; }
    /// See is_read_bypass().
    static constexpr stateid4 read_bypass() noexcept
    {
        stateid4 value{UINT32_MAX, {}};
        for (std::byte& each : value.other)
            each = std::byte(0xff);
        return value;
    }
    /// The stateid that the operation before left (RFC 8881 16.2.3.1.2).
    static constexpr stateid4 current() noexcept { return {1, {}}; }
    /// Never a good one: a server puts it where it has none to give.
    static constexpr stateid4 invalid() noexcept { return {UINT32_MAX, {}}; }

    /// For READ, WRITE, SETATTR of the size and 4.2's data operations.
    constexpr bool is_anonymous() const noexcept { return seqid == 0 && other_is(0); }
    /// For READ without regard to share denies; elsewhere as anonymous.
    constexpr bool is_read_bypass() const noexcept { return seqid == UINT32_MAX && other_is(0xff); }
    /// "The one that the operation before yielded", from minor version 1 on.
    constexpr bool is_current() const noexcept { return seqid == 1 && other_is(0); }
    /// What CLOSE answers; BAD_STATEID as an argument.
    constexpr bool is_invalid() const noexcept { return seqid == UINT32_MAX && other_is(0); }
    /// `other` is of those that the server never gives out. If none of the four above is true as well, it is BAD_STATEID.
    constexpr bool is_reserved() const noexcept { return other_is(0) || other_is(0xff); }

    friend constexpr bool operator==(const stateid4&, const stateid4&) = default;

private:
    constexpr bool other_is(unsigned char every) const noexcept
    {
        return std::all_of(other.begin(), other.end(),
                           [every](std::byte b) { return b == std::byte(every); });
    }
};

/// Seconds from 1970 with a sign, and what is to be added to them.
struct nfstime4 {
    std::int64_t seconds = 0;
    std::uint32_t nseconds = 0;

    constexpr bool in_range() const noexcept { return nseconds <= 999'999'999; } ///< else INVAL
    friend bool operator==(const nfstime4&, const nfstime4&) = default;
};

/// Tells file systems of one server apart (RFC 8881 5.8.1.9).
struct fsid4 {
    std::uint64_t major = 0;
    std::uint64_t minor = 0;

    friend bool operator==(const fsid4&, const fsid4&) = default;
};

/// The numbers of a device file.
struct specdata4 {
    std::uint32_t specdata1 = 0; ///< major
    std::uint32_t specdata2 = 0; ///< minor

    friend bool operator==(const specdata4&, const specdata4&) = default;
};

/// `before` and `after` are values of the directory's change attribute. `atomic` is true only if nothing else came between.
struct change_info4 {
    bool atomic = false;
    changeid4 before = 0;
    changeid4 after = 0;

    friend bool operator==(const change_info4&, const change_info4&) = default;
};

/// What kind of file it is (RFC 8881 5.8.1.2).
enum class nfs_ftype4 : std::uint32_t {
    reg = 1,
    dir = 2,
    blk = 3,
    chr = 4,
    lnk = 5,
    sock = 6,
    fifo = 7,
    attrdir = 8,
    namedattr = 9,
};
constexpr bool valid(nfs_ftype4) noexcept { return true; } // CREATE: BADTYPE

/// What is on stable storage when a WRITE is answered (RFC 8881 18.32).
enum class stable_how4 : std::uint32_t { unstable = 0, data_sync = 1, file_sync = 2 };
constexpr bool valid(stable_how4 value) noexcept { return value <= stable_how4::file_sync; }

/// Where a time that is set comes from.
enum class time_how4 : std::uint32_t { set_to_server_time = 0, set_to_client_time = 1 };
constexpr bool valid(time_how4 value) noexcept { return value <= time_how4::set_to_client_time; }

/// What OPEN does where the name is there (RFC 8881 18.16.3).
enum class createmode4 : std::uint32_t { unchecked = 0, guarded = 1, exclusive = 2, exclusive4_1 = 3 };
constexpr bool valid(createmode4 value) noexcept { return value <= createmode4::exclusive4_1; }

/// Whether OPEN may make the file.
enum class opentype4 : std::uint32_t { nocreate = 0, create = 1 };
constexpr bool valid(opentype4 value) noexcept { return value <= opentype4::create; }

/// From `fh` on: minor versions 1 and 2.
enum class open_claim_type4 : std::uint32_t {
    null = 0,
    previous = 1,
    delegate_cur = 2,
    delegate_prev = 3,
    fh = 4,
    deleg_cur_fh = 5,
    deleg_prev_fh = 6,
};
constexpr bool valid(open_claim_type4 value) noexcept { return value <= open_claim_type4::deleg_prev_fh; }

/// None of the last three may be given to a client that did not ask for it.
enum class open_delegation_type4 : std::uint32_t {
    none = 0,
    read = 1,
    write = 2,
    none_ext = 3,
    read_attrs_deleg = 4, ///< RFC 9754
    write_attrs_deleg = 5,
};
constexpr bool valid(open_delegation_type4 value) noexcept
{
    return value <= open_delegation_type4::write_attrs_deleg;
}

/// Why OPEN brought no delegation that was wanted (RFC 8881 18.16.2).
enum class why_no_delegation4 : std::uint32_t {
    not_wanted = 0,
    contention = 1,
    resource = 2,
    not_supp_ftype = 3,
    write_deleg_not_supp_ftype = 4,
    not_supp_upgrade = 5,
    not_supp_downgrade = 6,
    cancelled = 7,
    is_dir = 8,
};
constexpr bool valid(why_no_delegation4) noexcept { return true; } // the union has a default arm

/// How nfs_space_limit4 says what may be written.
enum class limit_by4 : std::uint32_t { size = 1, blocks = 2 };
constexpr bool valid(limit_by4 value) noexcept
{
    return value == limit_by4::size || value == limit_by4::blocks;
}

/// How bytes are locked; the last two say that the client waits (RFC 8881 18.10).
enum class nfs_lock_type4 : std::uint32_t { read = 1, write = 2, readw = 3, writew = 4 };
constexpr bool valid(nfs_lock_type4 value) noexcept
{
    return value >= nfs_lock_type4::read && value <= nfs_lock_type4::writew;
}

/// Who may change what a client has (RFC 8881 2.10.8.3).
enum class state_protect_how4 : std::uint32_t { none = 0, mach_cred = 1, ssv = 2 };
constexpr bool valid(state_protect_how4 value) noexcept { return value <= state_protect_how4::ssv; }

/// What a client binds a connection for (RFC 8881 18.34).
enum class channel_dir_from_client4 : std::uint32_t {
    fore = 1,
    back = 2,
    fore_or_both = 3,
    back_or_both = 7
};
constexpr bool valid(channel_dir_from_client4) noexcept { return true; } // INVAL

/// What the server bound it for.
enum class channel_dir_from_server4 : std::uint32_t { fore = 1, back = 2, both = 3 };
constexpr bool valid(channel_dir_from_server4) noexcept { return true; }

/// Whose flavours SECINFO_NO_NAME asks for (RFC 8881 18.45).
enum class secinfo_style4 : std::uint32_t { current_fh = 0, parent = 1 };
constexpr bool valid(secinfo_style4) noexcept { return true; } // INVAL

/// What RPCSEC_GSS protects (RFC 2203 5).
enum class rpc_gss_svc_t : std::uint32_t { none = 1, integrity = 2, privacy = 3 };
constexpr bool valid(rpc_gss_svc_t) noexcept { return true; }

/// Layout types of RFCs, and that of draft-hellwig-nfsv4-rdma-layout-00.
enum class layouttype4 : std::uint32_t {
    nfsv4_1_files = 1,
    osd2_objects = 2,
    block_volume = 3,
    flex_files = 4,
    scsi = 5,
    rdma = 0x80000006,
};
constexpr bool valid(layouttype4) noexcept { return true; } // UNKNOWN_LAYOUTTYPE

/// What a layout is for (RFC 8881 3.3).
enum class layoutiomode4 : std::uint32_t { read = 1, rw = 2, any = 3 };
constexpr bool valid(layoutiomode4) noexcept { return true; } // BADIOMODE

/// Which layouts are given back (RFC 8881 18.44).
enum class layoutreturn_type4 : std::uint32_t { file = 1, fsid = 2, all = 3 };
constexpr bool valid(layoutreturn_type4) noexcept { return true; } // the union has a default arm

/// Which layouts are recalled (RFC 8881 20.3).
enum class layoutrecall_type4 : std::uint32_t { file = 1, fsid = 2, all = 3 };
constexpr bool valid(layoutrecall_type4 value) noexcept
{
    return value >= layoutrecall_type4::file && value <= layoutrecall_type4::all;
}

/// How another server is named (RFC 7862 15.2).
enum class netloc_type4 : std::uint32_t { name = 1, url = 2, netaddr = 3 };
constexpr bool valid(netloc_type4 value) noexcept
{
    return value >= netloc_type4::name && value <= netloc_type4::netaddr;
}

/// What SEEK looks for (RFC 7862 15.11).
enum class data_content4 : std::uint32_t { data = 0, hole = 1 };
constexpr bool valid(data_content4) noexcept { return true; } // SEEK: UNION_NOTSUPP

/// What SETXATTR does where there is an attribute of the name, or none (RFC 8276 8.4.2).
enum class setxattr_option4 : std::uint32_t { either = 0, create = 1, replace = 2 };
constexpr bool valid(setxattr_option4 value) noexcept { return value <= setxattr_option4::replace; }

/// What may be concluded from two values of `change` (RFC 7862 12.2.3).
enum class change_attr_type4 : std::uint32_t {
    monotonic_incr = 0,
    version_counter = 1,
    version_counter_nopnfs = 2,
    time_metadata = 3,
    undefined = 4,
};
constexpr bool valid(change_attr_type4) noexcept { return true; }

/// Bits of ACCESS.
namespace access4 {
inline constexpr std::uint32_t read = 0x01;
inline constexpr std::uint32_t lookup = 0x02;
inline constexpr std::uint32_t modify = 0x04;
inline constexpr std::uint32_t extend = 0x08;
inline constexpr std::uint32_t remove = 0x10; ///< ACCESS4_DELETE
inline constexpr std::uint32_t execute = 0x20;
inline constexpr std::uint32_t all = 0x3f;
inline constexpr std::uint32_t xaread = 0x40; ///< RFC 8276: minor version 2
inline constexpr std::uint32_t xawrite = 0x80;
inline constexpr std::uint32_t xalist = 0x100;
inline constexpr std::uint32_t all_with_xattr = 0x1ff;
} // namespace access4

/// share_access and share_deny of OPEN and OPEN_DOWNGRADE. The want bits belong to minor versions 1 and 2.
namespace share4 {
inline constexpr std::uint32_t access_read = 1;
inline constexpr std::uint32_t access_write = 2;
inline constexpr std::uint32_t access_both = 3;
inline constexpr std::uint32_t deny_none = 0;
inline constexpr std::uint32_t deny_read = 1;
inline constexpr std::uint32_t deny_write = 2;
inline constexpr std::uint32_t deny_both = 3;
inline constexpr std::uint32_t want_delegation_mask = 0xff00; ///< the five below are values of it
inline constexpr std::uint32_t want_no_preference = 0;
inline constexpr std::uint32_t want_read_delegation = 0x100;
inline constexpr std::uint32_t want_write_delegation = 0x200;
inline constexpr std::uint32_t want_any_delegation = 0x300;
inline constexpr std::uint32_t want_no_delegation = 0x400;
inline constexpr std::uint32_t want_cancel = 0x500;
inline constexpr std::uint32_t want_signal_when_available = 0x10000;
inline constexpr std::uint32_t want_push_when_uncontended = 0x20000;
inline constexpr std::uint32_t want_delegated_timestamps = 0x100000; ///< RFC 9754
inline constexpr std::uint32_t want_open_xor_delegation = 0x200000;
inline constexpr std::uint32_t want_all = want_delegation_mask | want_signal_when_available |
                                          want_push_when_uncontended | want_delegated_timestamps |
                                          want_open_xor_delegation;
} // namespace share4

/// rflags of OPEN's results.
namespace open4_result {
inline constexpr std::uint32_t confirm = 0x02; ///< minor version 0
inline constexpr std::uint32_t locktype_posix = 0x04;
inline constexpr std::uint32_t preserve_unlinked = 0x08; ///< also over a restart of the server
inline constexpr std::uint32_t no_open_stateid = 0x10;   // RFC 9754
inline constexpr std::uint32_t may_notify_lock = 0x20;
} // namespace open4_result

/// Flags of EXCHANGE_ID.
namespace exchgid4 {
inline constexpr std::uint32_t supp_moved_refer = 0x1;
inline constexpr std::uint32_t supp_moved_migr = 0x2;
inline constexpr std::uint32_t supp_fence_ops = 0x4; ///< minor version 2
inline constexpr std::uint32_t bind_princ_stateid = 0x100;
inline constexpr std::uint32_t use_non_pnfs = 0x10000;
inline constexpr std::uint32_t use_pnfs_mds = 0x20000;
inline constexpr std::uint32_t use_pnfs_ds = 0x40000;
inline constexpr std::uint32_t mask_pnfs = 0x70000;
inline constexpr std::uint32_t upd_confirmed_rec_a = 0x40000000;
inline constexpr std::uint32_t confirmed_r = 0x80000000; ///< the server's alone

/// What a client may say; another flag is INVAL.
constexpr std::uint32_t of_clients(std::uint32_t minor) noexcept
{
    return supp_moved_refer | supp_moved_migr | bind_princ_stateid | mask_pnfs | upd_confirmed_rec_a |
           (minor >= 2 ? supp_fence_ops : 0);
}
} // namespace exchgid4

/// Flags of CREATE_SESSION.
namespace create_session4 {
inline constexpr std::uint32_t persist = 1;
inline constexpr std::uint32_t conn_back_chan = 2;
inline constexpr std::uint32_t conn_rdma = 4;
inline constexpr std::uint32_t all = 7;
} // namespace create_session4

/// sr_status_flags of SEQUENCE.
namespace seq4_status {
inline constexpr std::uint32_t cb_path_down = 0x1;
inline constexpr std::uint32_t cb_gss_contexts_expiring = 0x2;
inline constexpr std::uint32_t cb_gss_contexts_expired = 0x4;
inline constexpr std::uint32_t expired_all_state_revoked = 0x8;
inline constexpr std::uint32_t expired_some_state_revoked = 0x10;
inline constexpr std::uint32_t admin_state_revoked = 0x20;
inline constexpr std::uint32_t recallable_state_revoked = 0x40;
inline constexpr std::uint32_t lease_moved = 0x80;
inline constexpr std::uint32_t restart_reclaim_needed = 0x100;
inline constexpr std::uint32_t cb_path_down_session = 0x200;
inline constexpr std::uint32_t backchannel_fault = 0x400;
inline constexpr std::uint32_t devid_changed = 0x800;
inline constexpr std::uint32_t devid_deleted = 0x1000;
} // namespace seq4_status

/// Values of fh_expire_type.
namespace fh4 {
inline constexpr std::uint32_t persistent = 0;
inline constexpr std::uint32_t noexpire_with_open = 1;
inline constexpr std::uint32_t volatile_any = 2;
inline constexpr std::uint32_t vol_migration = 4;
inline constexpr std::uint32_t vol_rename = 8;
} // namespace fh4

/// Bits of fs_charset_cap.
namespace fs_charset_cap4 {
inline constexpr std::uint32_t contains_non_utf8 = 1;
inline constexpr std::uint32_t allows_only_utf8 = 2;
} // namespace fs_charset_cap4

/// Bits of aclsupport.
namespace acl4_support {
inline constexpr std::uint32_t allow = 1;
inline constexpr std::uint32_t deny = 2;
inline constexpr std::uint32_t audit = 4;
inline constexpr std::uint32_t alarm = 8;
} // namespace acl4_support

/// nfsace4: its types, flags and access masks (8881 6.2.1).
namespace ace4 {
inline constexpr std::uint32_t type_allowed = 0;
inline constexpr std::uint32_t type_denied = 1;
inline constexpr std::uint32_t type_audit = 2;
inline constexpr std::uint32_t type_alarm = 3;

inline constexpr std::uint32_t file_inherit = 0x01;
inline constexpr std::uint32_t directory_inherit = 0x02;
inline constexpr std::uint32_t no_propagate_inherit = 0x04;
inline constexpr std::uint32_t inherit_only = 0x08;
inline constexpr std::uint32_t successful_access = 0x10;
inline constexpr std::uint32_t failed_access = 0x20;
inline constexpr std::uint32_t identifier_group = 0x40;
inline constexpr std::uint32_t inherited = 0x80;

inline constexpr std::uint32_t read_data = 0x1;   // LIST_DIRECTORY
inline constexpr std::uint32_t write_data = 0x2;  // ADD_FILE
inline constexpr std::uint32_t append_data = 0x4; ///< ADD_SUBDIRECTORY
inline constexpr std::uint32_t read_named_attrs = 0x8;
inline constexpr std::uint32_t write_named_attrs = 0x10;
inline constexpr std::uint32_t execute = 0x20;
inline constexpr std::uint32_t delete_child = 0x40;
inline constexpr std::uint32_t read_attributes = 0x80;
inline constexpr std::uint32_t write_attributes = 0x100;
inline constexpr std::uint32_t write_retention = 0x200;
inline constexpr std::uint32_t write_retention_hold = 0x400;
inline constexpr std::uint32_t remove = 0x10000; ///< ACE4_DELETE
inline constexpr std::uint32_t read_acl = 0x20000;
inline constexpr std::uint32_t write_acl = 0x40000;
inline constexpr std::uint32_t write_owner = 0x80000;
inline constexpr std::uint32_t synchronize = 0x100000;
} // namespace ace4

/// Bits of IO_ADVISE's hints.
enum class io_advise_type4 : std::uint32_t {
    normal = 0,
    sequential = 1,
    sequential_backwards = 2,
    random = 3,
    willneed = 4,
    willneed_opportunistic = 5,
    dontneed = 6,
    noreuse = 7,
    read = 8,
    write = 9,
    init_proximity = 10,
};

} // namespace verbena::nfs::v4

template<>
struct std::is_error_code_enum<verbena::nfs::v4::nfsstat4> : std::true_type {};

#pragma GCC visibility pop
