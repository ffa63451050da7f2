// SPDX-License-Identifier: Apache-2.0
// Values of NFS version 3 that the tests of its codec compare and don't print. Once for all of them, as they are compiled together.
#pragma once

#include <boost/test/unit_test.hpp>

#include <verbena/protocols/nfs/wire/v3/codec.hpp>

BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::nfs::v3::createmode3)
BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::nfs::v3::fattr3)
BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::nfs::v3::ftype3)
BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::nfs::v3::nfs_fh3)
BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::nfs::v3::nfsstat3)
BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::nfs::v3::nfstime3)
BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::nfs::v3::sattr3)
BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::nfs::v3::specdata3)
BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::nfs::v3::stable_how)
BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::nfs::v3::wcc_data)
