// SPDX-License-Identifier: Apache-2.0
#include "failure.hpp"

namespace verbena::cli {

failure::failure(std::string what, const error& why, std::string cure)
    : what_(std::move(what)), cure_(std::move(cure))
{
    what_ += ": " + why.message();
}

} // namespace verbena::cli
