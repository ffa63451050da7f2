// SPDX-License-Identifier: Apache-2.0
// All operations of minor versions 0 to 2: to do the same for each, or to find a struct by its number.
#pragma once

#include <verbena/protocols/nfs/wire/v4/directory.hpp>
#include <verbena/protocols/nfs/wire/v4/extended_operations.hpp>
#include <verbena/protocols/nfs/wire/v4/file_operations.hpp>
#include <verbena/protocols/nfs/wire/v4/layout_operations.hpp>
#include <verbena/protocols/nfs/wire/v4/session_operations.hpp>
#include <verbena/protocols/nfs/wire/v4/state_operations.hpp>

#include <type_traits>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// Arguments or results of operations, of which one at a time is there.
template<class... T>
struct operation_list {
    static_assert((std::is_trivially_destructible_v<T> && ...),
                  "arguments and results own nothing: decoding them takes no memory, whatever they announce");

    /// f(T()) for the T whose opcode is `which`; false if there is none.
    template<class Opcode, class F>
    static bool with(Opcode which, F&& f)
    {
        return (... || (which == T::opcode && (f(T()), true)));
    }
};

/// In the order of their numbers.
using all_arguments = operation_list<
    ACCESS4args, CLOSE4args, COMMIT4args, CREATE4args, DELEGPURGE4args, DELEGRETURN4args, GETATTR4args,
    GETFH4args, LINK4args, LOCK4args, LOCKT4args, LOCKU4args, LOOKUP4args, LOOKUPP4args, NVERIFY4args,
    OPEN4args, OPENATTR4args, OPEN_CONFIRM4args, OPEN_DOWNGRADE4args, PUTFH4args, PUTPUBFH4args,
    PUTROOTFH4args, READ4args, READDIR4args, READLINK4args, REMOVE4args, RENAME4args, RENEW4args,
    RESTOREFH4args, SAVEFH4args, SECINFO4args, SETATTR4args, SETCLIENTID4args, SETCLIENTID_CONFIRM4args,
    VERIFY4args, WRITE4args, RELEASE_LOCKOWNER4args, BACKCHANNEL_CTL4args, BIND_CONN_TO_SESSION4args,
    EXCHANGE_ID4args, CREATE_SESSION4args, DESTROY_SESSION4args, FREE_STATEID4args, GET_DIR_DELEGATION4args,
    GETDEVICEINFO4args, GETDEVICELIST4args, LAYOUTCOMMIT4args, LAYOUTGET4args, LAYOUTRETURN4args,
    SECINFO_NO_NAME4args, SEQUENCE4args, SET_SSV4args, TEST_STATEID4args, WANT_DELEGATION4args,
    DESTROY_CLIENTID4args, RECLAIM_COMPLETE4args, ALLOCATE4args, COPY4args, COPY_NOTIFY4args, DEALLOCATE4args,
    IO_ADVISE4args, LAYOUTERROR4args, LAYOUTSTATS4args, OFFLOAD_CANCEL4args, OFFLOAD_STATUS4args,
    READ_PLUS4args, SEEK4args, WRITE_SAME4args, CLONE4args, GETXATTR4args, SETXATTR4args, LISTXATTRS4args,
    REMOVEXATTR4args>;

/// Their results, in the same order.
using all_results = operation_list<
    ACCESS4res, CLOSE4res, COMMIT4res, CREATE4res, DELEGPURGE4res, DELEGRETURN4res, GETATTR4res, GETFH4res,
    LINK4res, LOCK4res, LOCKT4res, LOCKU4res, LOOKUP4res, LOOKUPP4res, NVERIFY4res, OPEN4res, OPENATTR4res,
    OPEN_CONFIRM4res, OPEN_DOWNGRADE4res, PUTFH4res, PUTPUBFH4res, PUTROOTFH4res, READ4res, READDIR4res,
    READLINK4res, REMOVE4res, RENAME4res, RENEW4res, RESTOREFH4res, SAVEFH4res, SECINFO4res, SETATTR4res,
    SETCLIENTID4res, SETCLIENTID_CONFIRM4res, VERIFY4res, WRITE4res, RELEASE_LOCKOWNER4res,
    BACKCHANNEL_CTL4res, BIND_CONN_TO_SESSION4res, EXCHANGE_ID4res, CREATE_SESSION4res, DESTROY_SESSION4res,
    FREE_STATEID4res, GET_DIR_DELEGATION4res, GETDEVICEINFO4res, GETDEVICELIST4res, LAYOUTCOMMIT4res,
    LAYOUTGET4res, LAYOUTRETURN4res, SECINFO_NO_NAME4res, SEQUENCE4res, SET_SSV4res, TEST_STATEID4res,
    WANT_DELEGATION4res, DESTROY_CLIENTID4res, RECLAIM_COMPLETE4res, ALLOCATE4res, COPY4res, COPY_NOTIFY4res,
    DEALLOCATE4res, IO_ADVISE4res, LAYOUTERROR4res, LAYOUTSTATS4res, OFFLOAD_CANCEL4res, OFFLOAD_STATUS4res,
    READ_PLUS4res, SEEK4res, WRITE_SAME4res, CLONE4res, GETXATTR4res, SETXATTR4res, LISTXATTRS4res,
    REMOVEXATTR4res>;

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
