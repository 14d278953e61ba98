"""What runs beside the learner's code inside a worker and writes down what each replica did."""
