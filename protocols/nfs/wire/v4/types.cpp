// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/wire/v4/types.hpp>

#include <cerrno>
#include <string>

namespace verbena::nfs::v4 {
namespace {

class status_category_type final : public std::error_category {
public:
    const char* name() const noexcept override { return "nfs4"; }
    std::string message(int value) const override
    {
        const std::string code = to_string(static_cast<nfsstat4>(value));
        const std::string meaning = meaning_of(value);
        return meaning.empty() ? code : code + ": " + meaning;
    }

    std::error_condition default_error_condition(int value) const noexcept override
    {
        switch (static_cast<nfsstat4>(value)) {
        case nfsstat4::perm: return std::errc::operation_not_permitted;
        case nfsstat4::noent: return std::errc::no_such_file_or_directory;
        case nfsstat4::io: return std::errc::io_error;
        case nfsstat4::nxio: return std::errc::no_such_device_or_address;
        case nfsstat4::access: return std::errc::permission_denied;
        case nfsstat4::exist: return std::errc::file_exists;
        case nfsstat4::xdev: return std::errc::cross_device_link;
        case nfsstat4::notdir: return std::errc::not_a_directory;
        case nfsstat4::isdir: return std::errc::is_a_directory;
        case nfsstat4::inval: return std::errc::invalid_argument;
        case nfsstat4::fbig: return std::errc::file_too_large;
        case nfsstat4::nospc: return std::errc::no_space_on_device;
        case nfsstat4::rofs: return std::errc::read_only_file_system;
        case nfsstat4::mlink: return std::errc::too_many_links;
        case nfsstat4::nametoolong: return std::errc::filename_too_long;
        case nfsstat4::notempty: return std::errc::directory_not_empty;
        case nfsstat4::notsupp: return std::errc::not_supported;
        case nfsstat4::deadlock: return std::errc::resource_deadlock_would_occur;
        default: return {value, *this};
        }
    }

private:
    // The words of POSIX where it knows the error; else what a user can do with, in short. What no user meets is a number.
    std::string meaning_of(int value) const
    {
        switch (static_cast<nfsstat4>(value)) {
        case nfsstat4::ok: return {};
        case nfsstat4::dquot: return std::generic_category().message(EDQUOT);
        case nfsstat4::stale: return std::generic_category().message(ESTALE);
        case nfsstat4::badhandle: return "The server can't read the file handle";
        case nfsstat4::bad_cookie: return "The place in the directory is no longer valid";
        case nfsstat4::toosmall: return "The answer does not fit into what was asked for";
        case nfsstat4::serverfault: return "The server failed";
        case nfsstat4::badtype: return "The server can't make files of this type";
        case nfsstat4::delay: return "The server is not ready yet; try again later";
        case nfsstat4::denied: return "The lock is held by another owner";
        case nfsstat4::expired:
        case nfsstat4::admin_revoked: return "The server has taken the open or lock away";
        case nfsstat4::locked: return "The file is locked or opened against this access";
        case nfsstat4::grace: return "The server waits for its clients to come back after a restart";
        case nfsstat4::share_denied: return "The file is open in a mode that denies this one";
        case nfsstat4::wrongsec: return "The export wants another security flavour";
        case nfsstat4::minor_vers_mismatch: return "The server does not speak this minor version";
        case nfsstat4::symlink: return "The name is a symbolic link";
        case nfsstat4::attrnotsupp: return "The file system does not have this attribute";
        case nfsstat4::badowner: return "The server does not know this owner or group";
        case nfsstat4::badchar:
        case nfsstat4::badname: return "The server can't have a file of this name";
        case nfsstat4::file_open: return "The file is open";
        case nfsstat4::wrong_type: return "The file is of a type that this can't be done to";
        case nfsstat4::noxattr: return "There is no such extended attribute";
        case nfsstat4::xattr2big: return "The extended attribute is too large";
        default: break;
        }
        const std::error_condition known = default_error_condition(value);
        return known.category() == std::generic_category() ? known.message() : std::to_string(value);
    }
};

} // namespace

const char* to_string(nfs_opnum4 value) noexcept
{
    switch (value) {
    case nfs_opnum4::access: return "ACCESS";
    case nfs_opnum4::close: return "CLOSE";
    case nfs_opnum4::commit: return "COMMIT";
    case nfs_opnum4::create: return "CREATE";
    case nfs_opnum4::delegpurge: return "DELEGPURGE";
    case nfs_opnum4::delegreturn: return "DELEGRETURN";
    case nfs_opnum4::getattr: return "GETATTR";
    case nfs_opnum4::getfh: return "GETFH";
    case nfs_opnum4::link: return "LINK";
    case nfs_opnum4::lock: return "LOCK";
    case nfs_opnum4::lockt: return "LOCKT";
    case nfs_opnum4::locku: return "LOCKU";
    case nfs_opnum4::lookup: return "LOOKUP";
    case nfs_opnum4::lookupp: return "LOOKUPP";
    case nfs_opnum4::nverify: return "NVERIFY";
    case nfs_opnum4::open: return "OPEN";
    case nfs_opnum4::openattr: return "OPENATTR";
    case nfs_opnum4::open_confirm: return "OPEN_CONFIRM";
    case nfs_opnum4::open_downgrade: return "OPEN_DOWNGRADE";
    case nfs_opnum4::putfh: return "PUTFH";
    case nfs_opnum4::putpubfh: return "PUTPUBFH";
    case nfs_opnum4::putrootfh: return "PUTROOTFH";
    case nfs_opnum4::read: return "READ";
    case nfs_opnum4::readdir: return "READDIR";
    case nfs_opnum4::readlink: return "READLINK";
    case nfs_opnum4::remove: return "REMOVE";
    case nfs_opnum4::rename: return "RENAME";
    case nfs_opnum4::renew: return "RENEW";
    case nfs_opnum4::restorefh: return "RESTOREFH";
    case nfs_opnum4::savefh: return "SAVEFH";
    case nfs_opnum4::secinfo: return "SECINFO";
    case nfs_opnum4::setattr: return "SETATTR";
    case nfs_opnum4::setclientid: return "SETCLIENTID";
    case nfs_opnum4::setclientid_confirm: return "SETCLIENTID_CONFIRM";
    case nfs_opnum4::verify: return "VERIFY";
    case nfs_opnum4::write: return "WRITE";
    case nfs_opnum4::release_lockowner: return "RELEASE_LOCKOWNER";
    case nfs_opnum4::backchannel_ctl: return "BACKCHANNEL_CTL";
    case nfs_opnum4::bind_conn_to_session: return "BIND_CONN_TO_SESSION";
    case nfs_opnum4::exchange_id: return "EXCHANGE_ID";
    case nfs_opnum4::create_session: return "CREATE_SESSION";
    case nfs_opnum4::destroy_session: return "DESTROY_SESSION";
    case nfs_opnum4::free_stateid: return "FREE_STATEID";
    case nfs_opnum4::get_dir_delegation: return "GET_DIR_DELEGATION";
    case nfs_opnum4::getdeviceinfo: return "GETDEVICEINFO";
    case nfs_opnum4::getdevicelist: return "GETDEVICELIST";
    case nfs_opnum4::layoutcommit: return "LAYOUTCOMMIT";
    case nfs_opnum4::layoutget: return "LAYOUTGET";
    case nfs_opnum4::layoutreturn: return "LAYOUTRETURN";
    case nfs_opnum4::secinfo_no_name: return "SECINFO_NO_NAME";
    case nfs_opnum4::sequence: return "SEQUENCE";
    case nfs_opnum4::set_ssv: return "SET_SSV";
    case nfs_opnum4::test_stateid: return "TEST_STATEID";
    case nfs_opnum4::want_delegation: return "WANT_DELEGATION";
    case nfs_opnum4::destroy_clientid: return "DESTROY_CLIENTID";
    case nfs_opnum4::reclaim_complete: return "RECLAIM_COMPLETE";
    case nfs_opnum4::allocate: return "ALLOCATE";
    case nfs_opnum4::copy: return "COPY";
    case nfs_opnum4::copy_notify: return "COPY_NOTIFY";
    case nfs_opnum4::deallocate: return "DEALLOCATE";
    case nfs_opnum4::io_advise: return "IO_ADVISE";
    case nfs_opnum4::layouterror: return "LAYOUTERROR";
    case nfs_opnum4::layoutstats: return "LAYOUTSTATS";
    case nfs_opnum4::offload_cancel: return "OFFLOAD_CANCEL";
    case nfs_opnum4::offload_status: return "OFFLOAD_STATUS";
    case nfs_opnum4::read_plus: return "READ_PLUS";
    case nfs_opnum4::seek: return "SEEK";
    case nfs_opnum4::write_same: return "WRITE_SAME";
    case nfs_opnum4::clone: return "CLONE";
    case nfs_opnum4::getxattr: return "GETXATTR";
    case nfs_opnum4::setxattr: return "SETXATTR";
    case nfs_opnum4::listxattrs: return "LISTXATTRS";
    case nfs_opnum4::removexattr: return "REMOVEXATTR";
    case nfs_opnum4::illegal: return "ILLEGAL";
    }
    return "ILLEGAL";
}

const char* to_string(nfsstat4 status) noexcept
{
    switch (status) {
    case nfsstat4::ok: return "NFS4_OK";
    case nfsstat4::perm: return "NFS4ERR_PERM";
    case nfsstat4::noent: return "NFS4ERR_NOENT";
    case nfsstat4::io: return "NFS4ERR_IO";
    case nfsstat4::nxio: return "NFS4ERR_NXIO";
    case nfsstat4::access: return "NFS4ERR_ACCESS";
    case nfsstat4::exist: return "NFS4ERR_EXIST";
    case nfsstat4::xdev: return "NFS4ERR_XDEV";
    case nfsstat4::notdir: return "NFS4ERR_NOTDIR";
    case nfsstat4::isdir: return "NFS4ERR_ISDIR";
    case nfsstat4::inval: return "NFS4ERR_INVAL";
    case nfsstat4::fbig: return "NFS4ERR_FBIG";
    case nfsstat4::nospc: return "NFS4ERR_NOSPC";
    case nfsstat4::rofs: return "NFS4ERR_ROFS";
    case nfsstat4::mlink: return "NFS4ERR_MLINK";
    case nfsstat4::nametoolong: return "NFS4ERR_NAMETOOLONG";
    case nfsstat4::notempty: return "NFS4ERR_NOTEMPTY";
    case nfsstat4::dquot: return "NFS4ERR_DQUOT";
    case nfsstat4::stale: return "NFS4ERR_STALE";
    case nfsstat4::badhandle: return "NFS4ERR_BADHANDLE";
    case nfsstat4::bad_cookie: return "NFS4ERR_BAD_COOKIE";
    case nfsstat4::notsupp: return "NFS4ERR_NOTSUPP";
    case nfsstat4::toosmall: return "NFS4ERR_TOOSMALL";
    case nfsstat4::serverfault: return "NFS4ERR_SERVERFAULT";
    case nfsstat4::badtype: return "NFS4ERR_BADTYPE";
    case nfsstat4::delay: return "NFS4ERR_DELAY";
    case nfsstat4::same: return "NFS4ERR_SAME";
    case nfsstat4::denied: return "NFS4ERR_DENIED";
    case nfsstat4::expired: return "NFS4ERR_EXPIRED";
    case nfsstat4::locked: return "NFS4ERR_LOCKED";
    case nfsstat4::grace: return "NFS4ERR_GRACE";
    case nfsstat4::fhexpired: return "NFS4ERR_FHEXPIRED";
    case nfsstat4::share_denied: return "NFS4ERR_SHARE_DENIED";
    case nfsstat4::wrongsec: return "NFS4ERR_WRONGSEC";
    case nfsstat4::clid_inuse: return "NFS4ERR_CLID_INUSE";
    case nfsstat4::resource: return "NFS4ERR_RESOURCE";
    case nfsstat4::moved: return "NFS4ERR_MOVED";
    case nfsstat4::nofilehandle: return "NFS4ERR_NOFILEHANDLE";
    case nfsstat4::minor_vers_mismatch: return "NFS4ERR_MINOR_VERS_MISMATCH";
    case nfsstat4::stale_clientid: return "NFS4ERR_STALE_CLIENTID";
    case nfsstat4::stale_stateid: return "NFS4ERR_STALE_STATEID";
    case nfsstat4::old_stateid: return "NFS4ERR_OLD_STATEID";
    case nfsstat4::bad_stateid: return "NFS4ERR_BAD_STATEID";
    case nfsstat4::bad_seqid: return "NFS4ERR_BAD_SEQID";
    case nfsstat4::not_same: return "NFS4ERR_NOT_SAME";
    case nfsstat4::lock_range: return "NFS4ERR_LOCK_RANGE";
    case nfsstat4::symlink: return "NFS4ERR_SYMLINK";
    case nfsstat4::restorefh: return "NFS4ERR_RESTOREFH";
    case nfsstat4::lease_moved: return "NFS4ERR_LEASE_MOVED";
    case nfsstat4::attrnotsupp: return "NFS4ERR_ATTRNOTSUPP";
    case nfsstat4::no_grace: return "NFS4ERR_NO_GRACE";
    case nfsstat4::reclaim_bad: return "NFS4ERR_RECLAIM_BAD";
    case nfsstat4::reclaim_conflict: return "NFS4ERR_RECLAIM_CONFLICT";
    case nfsstat4::badxdr: return "NFS4ERR_BADXDR";
    case nfsstat4::locks_held: return "NFS4ERR_LOCKS_HELD";
    case nfsstat4::openmode: return "NFS4ERR_OPENMODE";
    case nfsstat4::badowner: return "NFS4ERR_BADOWNER";
    case nfsstat4::badchar: return "NFS4ERR_BADCHAR";
    case nfsstat4::badname: return "NFS4ERR_BADNAME";
    case nfsstat4::bad_range: return "NFS4ERR_BAD_RANGE";
    case nfsstat4::lock_notsupp: return "NFS4ERR_LOCK_NOTSUPP";
    case nfsstat4::op_illegal: return "NFS4ERR_OP_ILLEGAL";
    case nfsstat4::deadlock: return "NFS4ERR_DEADLOCK";
    case nfsstat4::file_open: return "NFS4ERR_FILE_OPEN";
    case nfsstat4::admin_revoked: return "NFS4ERR_ADMIN_REVOKED";
    case nfsstat4::cb_path_down: return "NFS4ERR_CB_PATH_DOWN";
    case nfsstat4::badiomode: return "NFS4ERR_BADIOMODE";
    case nfsstat4::badlayout: return "NFS4ERR_BADLAYOUT";
    case nfsstat4::bad_session_digest: return "NFS4ERR_BAD_SESSION_DIGEST";
    case nfsstat4::badsession: return "NFS4ERR_BADSESSION";
    case nfsstat4::badslot: return "NFS4ERR_BADSLOT";
    case nfsstat4::complete_already: return "NFS4ERR_COMPLETE_ALREADY";
    case nfsstat4::conn_not_bound_to_session: return "NFS4ERR_CONN_NOT_BOUND_TO_SESSION";
    case nfsstat4::deleg_already_wanted: return "NFS4ERR_DELEG_ALREADY_WANTED";
    case nfsstat4::back_chan_busy: return "NFS4ERR_BACK_CHAN_BUSY";
    case nfsstat4::layouttrylater: return "NFS4ERR_LAYOUTTRYLATER";
    case nfsstat4::layoutunavailable: return "NFS4ERR_LAYOUTUNAVAILABLE";
    case nfsstat4::nomatching_layout: return "NFS4ERR_NOMATCHING_LAYOUT";
    case nfsstat4::recallconflict: return "NFS4ERR_RECALLCONFLICT";
    case nfsstat4::unknown_layouttype: return "NFS4ERR_UNKNOWN_LAYOUTTYPE";
    case nfsstat4::seq_misordered: return "NFS4ERR_SEQ_MISORDERED";
    case nfsstat4::sequence_pos: return "NFS4ERR_SEQUENCE_POS";
    case nfsstat4::req_too_big: return "NFS4ERR_REQ_TOO_BIG";
    case nfsstat4::rep_too_big: return "NFS4ERR_REP_TOO_BIG";
    case nfsstat4::rep_too_big_to_cache: return "NFS4ERR_REP_TOO_BIG_TO_CACHE";
    case nfsstat4::retry_uncached_rep: return "NFS4ERR_RETRY_UNCACHED_REP";
    case nfsstat4::unsafe_compound: return "NFS4ERR_UNSAFE_COMPOUND";
    case nfsstat4::too_many_ops: return "NFS4ERR_TOO_MANY_OPS";
    case nfsstat4::op_not_in_session: return "NFS4ERR_OP_NOT_IN_SESSION";
    case nfsstat4::hash_alg_unsupp: return "NFS4ERR_HASH_ALG_UNSUPP";
    case nfsstat4::clientid_busy: return "NFS4ERR_CLIENTID_BUSY";
    case nfsstat4::pnfs_io_hole: return "NFS4ERR_PNFS_IO_HOLE";
    case nfsstat4::seq_false_retry: return "NFS4ERR_SEQ_FALSE_RETRY";
    case nfsstat4::bad_high_slot: return "NFS4ERR_BAD_HIGH_SLOT";
    case nfsstat4::deadsession: return "NFS4ERR_DEADSESSION";
    case nfsstat4::encr_alg_unsupp: return "NFS4ERR_ENCR_ALG_UNSUPP";
    case nfsstat4::pnfs_no_layout: return "NFS4ERR_PNFS_NO_LAYOUT";
    case nfsstat4::not_only_op: return "NFS4ERR_NOT_ONLY_OP";
    case nfsstat4::wrong_cred: return "NFS4ERR_WRONG_CRED";
    case nfsstat4::wrong_type: return "NFS4ERR_WRONG_TYPE";
    case nfsstat4::dirdeleg_unavail: return "NFS4ERR_DIRDELEG_UNAVAIL";
    case nfsstat4::reject_deleg: return "NFS4ERR_REJECT_DELEG";
    case nfsstat4::returnconflict: return "NFS4ERR_RETURNCONFLICT";
    case nfsstat4::deleg_revoked: return "NFS4ERR_DELEG_REVOKED";
    case nfsstat4::partner_notsupp: return "NFS4ERR_PARTNER_NOTSUPP";
    case nfsstat4::partner_no_auth: return "NFS4ERR_PARTNER_NO_AUTH";
    case nfsstat4::union_notsupp: return "NFS4ERR_UNION_NOTSUPP";
    case nfsstat4::offload_denied: return "NFS4ERR_OFFLOAD_DENIED";
    case nfsstat4::wrong_lfs: return "NFS4ERR_WRONG_LFS";
    case nfsstat4::badlabel: return "NFS4ERR_BADLABEL";
    case nfsstat4::offload_no_reqs: return "NFS4ERR_OFFLOAD_NO_REQS";
    case nfsstat4::noxattr: return "NFS4ERR_NOXATTR";
    case nfsstat4::xattr2big: return "NFS4ERR_XATTR2BIG";
    }
    return "NFS4ERR_unknown";
}

const std::error_category& status_category() noexcept
{
    static const status_category_type category;
    return category;
}

std::error_code make_error_code(nfsstat4 status) noexcept
{
    return {static_cast<int>(status), status_category()};
}

} // namespace verbena::nfs::v4
