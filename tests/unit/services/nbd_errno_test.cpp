// SPDX-License-Identifier: Apache-2.0
// What an NBD client is told of an error.
#include <boost/test/unit_test.hpp>

#include "../../../services/nbdkit/nbd_errno.hpp"

#include <future>

BOOST_AUTO_TEST_SUITE(nbd_errno_test)

using namespace verbena;

namespace {

int told(int code) { return nbd::errno_of(error::from_errno(code)); }

} // namespace

// The NBD protocol, "Error values": these and EROFS, EDQUOT and EFBIG, of which nbdkit makes EPERM and ENOSPC.
BOOST_AUTO_TEST_CASE(what_nbd_knows_is_passed_on)
{
    for (const int code :
         {EPERM, EIO, ENOMEM, EINVAL, ENOSPC, EOVERFLOW, EOPNOTSUPP, ESHUTDOWN, EROFS, EDQUOT, EFBIG})
        BOOST_TEST(told(code) == code);
}

// nbdkit says EINVAL for all else, as if the client had asked for something wrong.
BOOST_AUTO_TEST_CASE(what_nbd_does_not_know_is_an_input_output_error)
{
    for (const int code : {ENOTCONN, ESTALE, EBUSY, EAGAIN, ETIMEDOUT, ECANCELED, ENOENT, EACCES, 0})
        BOOST_TEST(told(code) == EIO);
    BOOST_TEST(nbd::errno_of(error(std::make_error_code(std::future_errc::no_state))) == EIO);
}

BOOST_AUTO_TEST_SUITE_END()
