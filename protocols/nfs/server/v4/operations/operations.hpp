// SPDX-License-Identifier: Apache-2.0
// All operations. Each reads its arguments, does what they say, and adds its results or yields why it has none.
#pragma once

#include "../compound.hpp"

#include <verbena/core/task/task.hpp>

#include <cstdint>

namespace verbena::nfs::v4::operations {

using function = task<nfsstat4> (*)(compound&);

/// What serves an operation in a minor version that knows it; nullptr where nothing does.
function function_of(nfs_opnum4 operation, std::uint32_t minor) noexcept;

// handles.cpp
task<nfsstat4> putfh(compound& k);
task<nfsstat4> putrootfh(compound& k);
task<nfsstat4> putpubfh(compound& k);
task<nfsstat4> getfh(compound& k);
task<nfsstat4> savefh(compound& k);
task<nfsstat4> restorefh(compound& k);
task<nfsstat4> lookup(compound& k);
task<nfsstat4> lookupp(compound& k);
task<nfsstat4> secinfo(compound& k);
task<nfsstat4> secinfo_no_name(compound& k);

// attributes.cpp
task<nfsstat4> getattr(compound& k);
task<nfsstat4> setattr(compound& k);
task<nfsstat4> access(compound& k);
task<nfsstat4> verify(compound& k);
task<nfsstat4> nverify(compound& k);

// names.cpp
task<nfsstat4> create(compound& k);
task<nfsstat4> remove(compound& k);
task<nfsstat4> rename(compound& k);
task<nfsstat4> link(compound& k);

// listing.cpp
task<nfsstat4> readdir(compound& k);

// data.cpp
task<nfsstat4> read(compound& k);
task<nfsstat4> write(compound& k);
task<nfsstat4> commit(compound& k);
task<nfsstat4> readlink(compound& k);

// extended.cpp
task<nfsstat4> seek(compound& k);
task<nfsstat4> allocate(compound& k);
task<nfsstat4> deallocate(compound& k);
task<nfsstat4> io_advise(compound& k);
task<nfsstat4> copy(compound& k);
task<nfsstat4> clone(compound& k);

// xattrs.cpp
task<nfsstat4> getxattr(compound& k);
task<nfsstat4> setxattr(compound& k);
task<nfsstat4> listxattrs(compound& k);
task<nfsstat4> removexattr(compound& k);

// opens.cpp
task<nfsstat4> open(compound& k);
task<nfsstat4> open_downgrade(compound& k);
task<nfsstat4> close(compound& k);
task<nfsstat4> delegreturn(compound& k);

// layouts.cpp
task<nfsstat4> getdeviceinfo(compound& k);
task<nfsstat4> layoutget(compound& k);
task<nfsstat4> layoutcommit(compound& k);
task<nfsstat4> layoutreturn(compound& k);
task<nfsstat4> layouterror(compound& k);
task<nfsstat4> layoutstats(compound& k);

// locks.cpp
task<nfsstat4> lock(compound& k);
task<nfsstat4> lockt(compound& k);
task<nfsstat4> locku(compound& k);
task<nfsstat4> test_stateid(compound& k);
task<nfsstat4> free_stateid(compound& k);

// sessions.cpp
task<nfsstat4> exchange_id(compound& k);
task<nfsstat4> create_session(compound& k);
task<nfsstat4> destroy_session(compound& k);
task<nfsstat4> destroy_clientid(compound& k);
task<nfsstat4> bind_conn_to_session(compound& k);
task<nfsstat4> backchannel_ctl(compound& k);
task<nfsstat4> reclaim_complete(compound& k);

// v40.cpp: what only minor version 0 has, or has otherwise.
task<nfsstat4> setclientid(compound& k);
task<nfsstat4> setclientid_confirm(compound& k);
task<nfsstat4> renew(compound& k);
task<nfsstat4> release_lockowner(compound& k);
task<nfsstat4> open_v40(compound& k);
task<nfsstat4> open_confirm(compound& k);
task<nfsstat4> open_downgrade_v40(compound& k);
task<nfsstat4> close_v40(compound& k);
task<nfsstat4> lock_v40(compound& k);
task<nfsstat4> locku_v40(compound& k);

} // namespace verbena::nfs::v4::operations
