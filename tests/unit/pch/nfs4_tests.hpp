// SPDX-License-Identifier: Apache-2.0
// Precompiled for what tests NFS version 4's server and client: a fifth of what each of those files took.
#include "unit_tests.hpp"

#include "../protocols/nfs4_server.hpp"

#include <verbena/protocols/files/recovery.hpp>
#include <verbena/protocols/nfs/client/v4/client.hpp>
#include <verbena/protocols/nfs/client/v4/file.hpp>
#include <verbena/protocols/nfs/wire/v4/callback.hpp>
