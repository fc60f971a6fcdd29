// Adafactor's four steps against the definition in device.h, in double, on tensors as a whole and
// in the parts that tp and ZeRO make of them.
#include <algorithm>
#include <cmath>

#include "tests/worker/backend/device_fixture.h"
#include "tests/worker/backend/tested_backend.h"
#include "worker/backend/adafactor_steps.h"

namespace weft {
namespace {

// A run of elements of a box of the tensor.
struct Part {
  int64_t first_row, end_row, first_col, end_col;
  int64_t begin = 0, end = 0;  // of the box, row-major
};

// Each of `rows` x `cols` boxes in `runs` parts, as even as integers are.
std::vector<Part> CutInto(int64_t tensor_rows, int64_t tensor_cols, int64_t rows, int64_t cols,
                          int64_t runs) {
  std::vector<Part> parts;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      Part part = {tensor_rows * r / rows, tensor_rows * (r + 1) / rows, tensor_cols * c / cols,
                   tensor_cols * (c + 1) / cols};
      const int64_t elements = (part.end_row - part.first_row) * (part.end_col - part.first_col);
      for (int64_t run = 0; run < runs; ++run) {
        part.begin = elements * run / runs;
        part.end = elements * (run + 1) / runs;
        parts.push_back(part);
      }
    }
  }
  return parts;
}

double RootMeanSquare(const Doubles& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum / static_cast<double>(x.size()));
}

// The definition. rows 0: a vector.
struct AdafactorReference {
  int64_t rows, cols;
  Doubles p;
  Doubles r = Doubles(static_cast<size_t>(rows));
  Doubles c = Doubles(static_cast<size_t>(cols));

  void Update(const AdafactorParameters& adafactor, double scale, double beta,
              const std::vector<float>& gradient) {
    const auto count = static_cast<size_t>(cols);
    Doubles row_means(r.size());
    Doubles col_means(c.size());
    Doubles u(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      u[i] = scale * static_cast<double>(gradient[i]);
      const double square = u[i] * u[i] + 1e-30;
      if (rows > 0) row_means[i / count] += square / static_cast<double>(cols);
      col_means[i % count] += square / static_cast<double>(std::max<int64_t>(1, rows));
    }
    double mean = 0;
    for (size_t i = 0; i < r.size(); ++i) {
      r[i] = beta * r[i] + (1 - beta) * row_means[i];
      mean += r[i] / static_cast<double>(rows);
    }
    for (size_t i = 0; i < c.size(); ++i) c[i] = beta * c[i] + (1 - beta) * col_means[i];
    for (size_t i = 0; i < p.size(); ++i) {
      u[i] /= std::sqrt(c[i % count] * (rows > 0 ? r[i / count] / mean : 1));
    }
    const double lr =
        adafactor.lr * (adafactor.scale_parameter ? std::max(1e-3, RootMeanSquare(p)) : 1);
    const double clip = std::max(1.0, RootMeanSquare(u) / adafactor.clip_threshold);
    for (size_t i = 0; i < p.size(); ++i) {
      p[i] -= lr * (u[i] / clip + adafactor.weight_decay * p[i]);
    }
  }
};

class AdafactorOps : public DeviceTest {
 protected:
  // In memory the runs of its parts follow each other.
  struct Tensor {
    int64_t rows, cols;  // rows 0: a vector
    std::vector<Part> parts;
    std::vector<size_t> order;  // index in the tensor of each element in memory
    View gradient, param;
    FactoredView sums, moments;
    View norms, all_norms;  // of each part; of the tensor
  };

  View Filled(int64_t count, float value) {
    if (count == 0) return {};
    return Upload(1, count, std::vector<float>(static_cast<size_t>(count), value));
  }

  Tensor MakeTensor(int64_t rows, int64_t cols, const std::vector<Part>& parts,
                    const std::vector<float>& p) {
    const int64_t count = std::ssize(p);
    Tensor tensor = {.rows = rows,
                     .cols = cols,
                     .parts = parts,
                     .order = {},
                     .gradient = Fresh(1, count),
                     .param = Fresh(1, count),
                     .sums = {Filled(rows, 0), Filled(cols, 0)},
                     .moments = {Filled(rows, 0), Filled(cols, 0), Fresh(1, 1)},
                     .norms = Fresh(1, 2 * std::ssize(parts)),
                     .all_norms = Fresh(1, 2)};
    for (const Part& part : parts) {
      const int64_t width = part.end_col - part.first_col;
      for (int64_t at = part.begin; at < part.end; ++at) {
        const int64_t row = part.first_row + at / width;
        tensor.order.push_back(static_cast<size_t>(row * cols + part.first_col + at % width));
      }
    }
    Put(tensor, p, tensor.param);
    return tensor;
  }

  void Put(const Tensor& tensor, const std::vector<float>& whole, View to) {
    std::vector<float> in_memory;
    for (const size_t index : tensor.order) in_memory.push_back(whole[index]);
    device().CopyIn(to, in_memory.data());
  }
  std::vector<float> DownloadParam(const Tensor& tensor) {
    const std::vector<float> in_memory = Download(tensor.param);
    std::vector<float> whole(in_memory.size());
    for (size_t i = 0; i < whole.size(); ++i) whole[tensor.order[i]] = in_memory[i];
    return whole;
  }

  static View Slice(View row, int64_t first, int64_t end) {
    if (row.data == nullptr) return {};
    return {static_cast<char*>(row.data) + first * 4, 1, end - first, row.dtype};
  }
  static FactoredView BoxOf(const FactoredView& whole, const Part& part) {
    return {Slice(whole.rows, part.first_row, part.end_row),
            Slice(whole.cols, part.first_col, part.end_col), whole.row_mean};
  }

  // One update, part by part; norms are added up here, as ranks would.
  void Update(const AdafactorParameters& adafactor, double beta, const std::vector<float>& gradient,
              const Tensor& tensor) {
    Put(tensor, gradient, tensor.gradient);
    const auto for_each_part = [&](const auto& work) {
      int64_t offset = 0;
      for (size_t i = 0; i < tensor.parts.size(); ++i) {
        const Part& part = tensor.parts[i];
        const int64_t end = offset + part.end - part.begin;
        const auto at = static_cast<int64_t>(2 * i);
        work(part, Slice(tensor.gradient, offset, end), Slice(tensor.param, offset, end),
             Slice(tensor.norms, at, at + 2));
        offset = end;
      }
    };
    if (tensor.rows > 0) device().Zero(tensor.sums.rows);
    device().Zero(tensor.sums.cols);
    for_each_part([&](const Part& part, View g, View, View) {
      device().adafactor().Squares(adafactor.gradient_scale, g, part.begin,
                                   BoxOf(tensor.sums, part));
    });
    device().adafactor().Moments(beta, adafactor.gradient_scale, tensor.sums, tensor.moments);
    for_each_part([&](const Part& part, View g, View p, View norms) {
      device().adafactor().Norms(adafactor, g, p, part.begin, BoxOf(tensor.moments, part), norms);
    });
    const std::vector<float> norms = Download(tensor.norms);
    std::vector<float> sums(2);
    for (size_t i = 0; i < norms.size(); ++i) sums[i % 2] += norms[i];
    device().CopyIn(tensor.all_norms, sums.data());
    for_each_part([&](const Part& part, View g, View p, View) {
      device().adafactor().Update(adafactor, g, p, part.begin, BoxOf(tensor.moments, part),
                                  tensor.all_norms);
    });
  }
};

struct TensorCase {
  const char* name;
  int64_t rows, cols;
  std::vector<Part> parts;
};

TEST_P(AdafactorOps, FollowItsDefinitionOnWholeTensorsAndOnPartsOfThem) {
  const TensorCase tensors[] = {{"whole", 37, 515, CutInto(37, 515, 1, 1, 1)},
                                {"rows of tp, runs of ZeRO", 19, 131, CutInto(19, 131, 2, 1, 3)},
                                {"columns of tp, runs of ZeRO", 19, 131, CutInto(19, 131, 1, 3, 4)},
                                {"runs within a row", 3, 515, CutInto(3, 515, 1, 1, 7)},
                                {"one column", 40, 1, CutInto(40, 1, 1, 1, 2)},
                                {"vector", 0, 700, CutInto(1, 700, 1, 1, 1)},
                                {"vector in parts", 0, 700, CutInto(1, 700, 1, 2, 2)}};
  const struct {
    AdafactorParameters adafactor;
    double scale;
  } cases[] = {{{.lr = 0.01}, 1},
               {{.lr = 0.01, .clip_threshold = 0.3, .weight_decay = 0.1}, 0.25},
               {{.lr = 0.1, .scale_parameter = true, .weight_decay = 0.1}, 1}};
  for (const TensorCase& c : tensors) {
    for (const auto& [parameters, scale] : cases) {
      AdafactorParameters adafactor = parameters;
      if (scale != 1) adafactor.gradient_scale = UploadTotal(scale);
      const int64_t count = std::max<int64_t>(1, c.rows) * c.cols;
      adafactor.elements = count;
      const std::vector<float> start = Normal(count, 99);
      const Tensor tensor = MakeTensor(c.rows, c.cols, c.parts, start);
      AdafactorReference reference = {.rows = c.rows, .cols = c.cols, .p = ToDoubles(start)};
      for (uint32_t step = 1; step <= 3; ++step) {
        std::vector<float> gradient = Normal(count, step, 0.01F);
        // Rows and columns of sizes far apart, and what no token has reached.
        for (size_t i = 0; i < gradient.size() / 3; ++i) gradient[i] *= step < 3 ? 0.0F : 1e-9F;
        const double beta = 1 - std::pow(step, -0.8);
        reference.Update(adafactor, scale, beta, gradient);
        Update(adafactor, beta, gradient, tensor);
      }
      EXPECT_LT(RelativeError(DownloadParam(tensor), reference.p), 1e-6) << c.name;
      EXPECT_LT(RelativeError(Download(tensor.moments.cols), reference.c), 1e-6) << c.name;
      if (c.rows == 0) continue;
      EXPECT_LT(RelativeError(Download(tensor.moments.rows), reference.r), 1e-6) << c.name;
    }
  }
}

TEST_P(AdafactorOps, ARunBeyondItsBoxIsRefused) {
  const Tensor tensor = MakeTensor(3, 5, CutInto(3, 5, 1, 1, 1), std::vector<float>(15, 1));
  const View run = Upload(1, 6, std::vector<float>(6, 1));
  const AdafactorParameters adafactor = {.lr = 1, .elements = 15};
  const View norms = Upload(1, 2, {0, 0});
  for (const int64_t begin : {-1, 10}) {
    device().adafactor().Squares({}, run, begin, tensor.sums);
    EXPECT_FALSE(device().Synchronize().ok());
    device().adafactor().Norms(adafactor, run, run, begin, tensor.moments, norms);
    EXPECT_FALSE(device().Synchronize().ok());
    device().adafactor().Update(adafactor, run, run, begin, tensor.moments, norms);
    EXPECT_FALSE(device().Synchronize().ok());
  }
  device().adafactor().Moments(0.5, {}, {tensor.sums.cols, tensor.sums.cols}, tensor.moments);
  EXPECT_FALSE(device().Synchronize().ok());
  EXPECT_EQ(Download(tensor.sums.cols), std::vector<float>(5, 0));
  EXPECT_EQ(Download(run), std::vector<float>(6, 1));
}

INSTANTIATE_TEST_SUITE_P(Backends, AdafactorOps, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& suite) { return suite.param; });

}  // namespace
}  // namespace weft
